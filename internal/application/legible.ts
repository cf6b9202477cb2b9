/** Reads the bytes of a body as every text they may stand for: escapes, forms, base64, compression. Pure and bounded. */
import {
  type ZlibOptions,
  brotliDecompressSync,
  constants,
  gunzipSync,
  inflateSync,
  zstdDecompressSync,
} from 'node:zlib';
import {
  BINARY_DISTINCT_MIN,
  BINARY_IGNORED_BYTES,
  DECODED_MAX,
  ENCODED_BYTES_MIN,
  LAYERS_MAX,
  READINGS_MAX,
} from './limits.ts';

export interface Legible {
  /** In lower case, with compatibility characters (such as full-width digits) in their ordinary form. */
  readonly texts: readonly string[];
  /** Why a part of the bytes could not be read; undefined when all could. */
  readonly unreadable?: string;
}

interface Layer {
  readonly content: string | Buffer;
  readonly depth: number;
}

/** Every text that `body` stands for. Never throws, and does not recurse, however deep the body is nested. */
export function legible(body: Uint8Array): Legible {
  const texts = new Set<string>();
  const left: Layer[] = [{ content: Buffer.from(body.buffer, body.byteOffset, body.byteLength), depth: 0 }];
  let unreadable: string | undefined;
  let decoded = 0;
  for (let layer = left.shift(); layer !== undefined; layer = left.shift()) {
    const { content, depth } = layer;
    decoded += content.length;
    if (depth > LAYERS_MAX || texts.size >= READINGS_MAX || decoded > DECODED_MAX + body.byteLength) {
      unreadable = 'encoded in too many layers, or too large when decoded';
      break;
    }
    const inner = typeof content === 'string' ? ofText(content, texts) : ofBytes(content);
    unreadable ??= inner.unreadable;
    for (const next of inner.contents) left.push({ content: next, depth: depth + 1 });
  }
  return { texts: [...texts].map(plain), ...(unreadable === undefined ? {} : { unreadable }) };
}

interface Inner {
  readonly contents: readonly (string | Buffer)[];
  readonly unreadable?: string;
}

function ofText(text: string, texts: Set<string>): Inner {
  if (texts.has(text)) return { contents: [] };
  texts.add(text);
  const variants = [unescaped, formDecoded, quotedPrintableDecoded, entitiesDecoded].map((decode) => decode(text));
  const { pieces, unreadable } = encodedIn(text);
  return {
    contents: [...variants.filter((variant) => variant !== text), ...pieces],
    ...(unreadable === undefined ? {} : { unreadable }),
  };
}

/** Text in any encoding, or what it is compressed from. */
function ofBytes(bytes: Buffer): Inner {
  const compressed = decompressed(bytes);
  if (compressed !== undefined) return compressed;
  // Without its zero bytes, UTF-16 and UTF-32 of Latin letters read like UTF-8 or Latin-1.
  const contents = [bytes.toString('utf8').replaceAll('\0', '')];
  if (isUtf8(bytes)) return hasControls(contents[0]!) ? { contents, unreadable: 'binary data' } : { contents };
  const latin = bytes.toString('latin1').replaceAll('\0', '');
  contents.push(latin);
  for (const wide of [bytes, swapped(bytes)]) contents.push(wide.toString('utf16le'));
  if (!hasControls(latin) || looksWide(bytes)) return { contents };
  // Brotli has no magic bytes: one random body in 25 begins with what reads as a whole, tiny stream.
  const brotli = attempt(brotliDecompressSync, bytes);
  return typeof brotli !== 'string' && brotli.length === 1
    ? { contents: brotli }
    : { contents, unreadable: 'binary data' };
}

type Decompress = (bytes: Buffer, options: Pick<ZlibOptions, 'info' | 'maxOutputLength'>) => Buffer;

const decompressors: readonly (readonly [magic: readonly number[], decompress: Decompress])[] = [
  [[0x1f, 0x8b], (bytes, options) => gunzipSync(bytes, { ...options, ...cutOff })],
  [[0x78], (bytes, options) => inflateSync(bytes, { ...options, ...cutOff })],
  [[0x28, 0xb5, 0x2f, 0xfd], zstdDecompressSync],
];
/** A body that was cut off gives what it holds. */
const cutOff = { finishFlush: constants.Z_SYNC_FLUSH };

function decompressed(bytes: Buffer): Inner | undefined {
  const found = decompressors.find(([magic]) => magic.every((byte, index) => bytes[index] === byte));
  if (found === undefined) return undefined;
  const [magic, decompress] = found;
  const result = attempt(decompress, bytes);
  if (typeof result !== 'string') return { contents: result };
  // One byte is also the letter "x".
  if (magic.length === 1 && isUtf8(bytes)) return undefined;
  return result === 'too large' || magic.length > 1
    ? { contents: [], unreadable: 'compressed data that cannot be decompressed' }
    : undefined;
}

/** What is decompressed, and the bytes behind its end, if any. */
function attempt(decompress: Decompress, bytes: Buffer): Buffer[] | 'too large' | 'failed' {
  try {
    // With `info`, the answer also says how many bytes it read: node:zlib, `engine.bytesWritten`.
    const { buffer, engine } = decompress(bytes, { info: true, maxOutputLength: DECODED_MAX }) as unknown as {
      buffer: Buffer;
      engine: { bytesWritten: number };
    };
    const behind = bytes.subarray(engine.bytesWritten);
    return behind.length === 0 ? [buffer] : [buffer, behind];
  } catch (error) {
    return (error as { code?: unknown }).code === 'ERR_BUFFER_TOO_LARGE' ? 'too large' : 'failed';
  }
}

const strict = new TextDecoder('utf-8', { fatal: true });

function isUtf8(bytes: Buffer): boolean {
  try {
    strict.decode(bytes, { stream: false });
    return true;
  } catch {
    return false;
  }
}

/** Control characters other than white space: no text has them. */
function hasControls(text: string): boolean {
  // oxlint-disable-next-line no-control-regex -- they are what is looked for
  return /[\u0001-\u0008\u000e-\u001a\u001c-\u001f]/.test(text);
}

/** Every second byte is zero nearly everywhere: UTF-16 of a text in Latin letters. */
function looksWide(bytes: Buffer): boolean {
  const zeros = bytes.reduce((count, byte) => count + (byte === 0 ? 1 : 0), 0);
  return zeros * 3 > bytes.length;
}

function swapped(bytes: Buffer): Buffer {
  return Buffer.from(bytes.subarray(0, bytes.length - (bytes.length % 2))).swap16();
}

/** Lines of base64 as MIME folds them count as one run. */
const base64Digits = `[A-Za-z0-9+/_-]{${Math.ceil((ENCODED_BYTES_MIN * 4) / 3)},}`;
const base64Run = new RegExp(`(?:[A-Za-z0-9+/_-]{60,76}\\s{1,4})*${base64Digits}`, 'g');
const hexRun = new RegExp(`(?:[0-9a-fA-F]{2}){${ENCODED_BYTES_MIN},}`, 'g');

/** What runs of base64 and hexadecimal digits hold: all pieces of text as one text, and each compressed piece. */
function encodedIn(text: string): { readonly pieces: readonly (string | Buffer)[]; readonly unreadable?: string } {
  const texts: string[] = [];
  const pieces: Buffer[] = [];
  let unreadable: string | undefined;
  for (const [encoding, pattern] of [
    ['base64', base64Run],
    ['hex', hexRun],
  ] as const) {
    for (const [run] of text.matchAll(pattern)) {
      const bytes = Buffer.from(run, encoding);
      const controls = hasControls(bytes.toString('latin1').replaceAll('\0', ''));
      if (decompressed(bytes) !== undefined || looksWide(bytes)) pieces.push(bytes);
      else if (!controls) texts.push(isUtf8(bytes) ? bytes.toString('utf8') : bytes.toString('latin1'));
      else if (bytes.length > BINARY_IGNORED_BYTES && new Set(bytes).size > BINARY_DISTINCT_MIN) {
        unreadable = 'binary data in base64';
      }
    }
  }
  const together = texts.length === 0 ? [] : [texts.join('\n')];
  return { pieces: [...together, ...pieces], ...(unreadable === undefined ? {} : { unreadable }) };
}

const character = (code: number): string => (code <= 0x10_ff_ff ? String.fromCodePoint(code) : '\u{fffd}');

/** `jane\u0040example.com` of JSON, however often it was escaped and wherever it is broken. */
function unescaped(text: string): string {
  return text.replace(
    /\\+(?:u([0-9a-f]{4})|x([0-9a-f]{2})|([bfnrt])|)/gi,
    (_, four?: string, two?: string, space?: string) => {
      const hex = four ?? two;
      if (hex !== undefined) return String.fromCharCode(Number.parseInt(hex, 16));
      return space === undefined ? '' : ' ';
    },
  );
}

/** `jane%40example.com` of a form, also where other escapes are broken. */
function formDecoded(text: string): string {
  return text.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => character(Number.parseInt(hex, 16)));
}

/** `jane=40example.com` of an e-mail, with its soft line ends. */
function quotedPrintableDecoded(text: string): string {
  return text
    .replace(/=\r?\n/g, '')
    .replace(/=([0-9A-F]{2})/g, (_, hex: string) => character(Number.parseInt(hex, 16)));
}

/** `jane&#64;example.com` of HTML and XML. */
function entitiesDecoded(text: string): string {
  return text
    .replace(/&#x([0-9a-f]{1,6});/gi, (_, hex: string) => character(Number.parseInt(hex, 16)))
    .replace(/&#([0-9]{1,7});/g, (_, digits: string) => character(Number(digits)))
    .replaceAll('&commat;', '@')
    .replaceAll('&amp;', '&');
}

/** Full-width and other forms of a letter or digit become the ordinary one; invisible characters go. */
function plain(text: string): string {
  return text
    .normalize('NFKC')
    .replace(/\p{Default_Ignorable_Code_Point}/gu, '')
    .toLowerCase();
}
