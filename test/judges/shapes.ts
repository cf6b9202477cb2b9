/** Bodies of 65,000 bytes in shapes that are costly to read. */
import { randomBytes } from 'node:crypto';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { newRandom } from '../support/random.ts';

export interface Shape {
  readonly name: string;
  readonly body: () => Buffer;
}

const LARGEST = 65_000;

/** The search of an erasure meets the parts of this address again and again. */
export const LONG_ADDRESS = `${'aa.'.repeat(21)}a@${'aa.'.repeat(60)}example`;
export const EINS = ['111111111', '012345678'] as const;

const packed = (pack: (bytes: Buffer) => Buffer, bytes: number): string =>
  `${pack(Buffer.alloc(bytes)).toString('base64')} `;

/** Tokens of JSON, percent-encoding, HTML, addresses, numbers and other scripts. */
const words = String.raw`
  [ {"a": [[], { " , : 1e9 [{}], \ \\ \" \u0041 \u00 \ud83d
  % %41 %c3 =41 &#64; <a>
  @ . a@ .a@ a.a-
  11-1 111111111 9.9e999,
  İ ﷺ 株式 👩‍👩‍👧‍👦`;
const tokens: readonly string[] = [
  ...words.trim().split(/\s+/),
  ...' |\n|\0|\u3164|\u202e|\ufeff|\u0301|\ud83d'.split('|'),
  '\r\n',
  '1\u2013',
  '01234567 ',
  'x@example.com ',
  `${LONG_ADDRESS}x`,
  `x${LONG_ADDRESS}`,
  LONG_ADDRESS.slice(0, -1),
  LONG_ADDRESS.slice(1),
  `${'.'.repeat(300)}${LONG_ADDRESS}.au `,
  packed(zstdCompressSync, 1_000_000),
  packed(zstdCompressSync, 100_000_000),
  packed(gzipSync, 900_000),
];

/** Repeats `make` up to the largest body. */
function filled(make: (index: number) => string): string {
  const parts: string[] = [];
  for (let index = 0, length = 0; length < LARGEST; index += 1) {
    const part = make(index);
    parts.push(part);
    length += part.length;
  }
  return parts.join('');
}

/** As many tokens as fit after JSON escaping. */
function asString(token: string): string {
  const bytes = Buffer.byteLength(JSON.stringify(token)) - 2;
  return token.repeat(Math.max(1, Math.floor((LARGEST - 200) / 3 / bytes)));
}

const good = '"email":"ada@example.com","business_name":"Ada","ein":"123456789"';

const withKeys = (keys: string): string =>
  `{${good}${keys.slice(0, keys.lastIndexOf(',', LARGEST - 80))}}`;

const structures: Readonly<Record<string, (token: string) => string>> = {
  repeated: (token) => filled(() => token),
  'in a string of JSON': (token) => `{${good},"x":"${filled(() => token).slice(0, LARGEST - 80)}"}`,
  'in each field': (token) => {
    const text = asString(token);
    return JSON.stringify({ email: text, business_name: text, ein: text });
  },
  'a short name': (token) =>
    JSON.stringify({ email: token.repeat(9), business_name: token.repeat(60), ein: token }),
  'a list': (token) =>
    `{${good},"x":[${JSON.stringify(token)}${filled(() => `,${JSON.stringify(token)}`)}`,
  'its own key each time': (token) =>
    withKeys(filled((index) => `,${JSON.stringify(`${token}${index}`)}:0`)),
  'one key': (token) => withKeys(filled(() => `,${JSON.stringify(token)}:{}`)),
  nested: (token) => {
    const [open, close] = [`{${JSON.stringify(token)}:[`, ']}'];
    const depth = Math.floor((LARGEST - 80) / Buffer.byteLength(open + close));
    return `{${good},"x":${open.repeat(depth)}${close.repeat(depth)}}`;
  },
};

const encodings: Readonly<Record<string, (text: string) => Buffer>> = {
  'UTF-8': (text) => Buffer.from(text),
  'UTF-8 with a zero': (text) => Buffer.from(`\0${text}`),
  'UTF-16': (text) => Buffer.from(`\ufeff${text.slice(0, LARGEST / 2 - 1)}`, 'utf16le'),
  'UTF-16, big-endian': (text) =>
    Buffer.from(`\ufeff${text.slice(0, LARGEST / 2 - 1)}`, 'utf16le').swap16(),
};

/** V8 keeps objects with integer keys as arrays. */
const numbered: Readonly<Record<string, (index: number) => number>> = {
  'keys 0, 1, 2, …': (index) => index,
  'keys far apart': (index) => index * 1_013,
  'keys that fall': (index) => 4_000_000_000 - index * 7,
};

/** Every token in every structure and encoding, special cases, and `random` mixtures. */
export function* shapes(seed: number, mixtures: number): Generator<Shape> {
  const shape = (name: string, make: () => Buffer): Shape => ({
    name,
    body: () => make().subarray(0, LARGEST),
  });
  for (const token of tokens) {
    for (const [structure, make] of Object.entries(structures)) {
      for (const [encoding, encode] of Object.entries(encodings)) {
        // Only the search reads other encodings.
        if (encoding !== 'UTF-8' && structure !== 'repeated') continue;
        const name = `${JSON.stringify(token).slice(0, 40)}, ${structure}, ${encoding}`;
        yield shape(name, () => encode(make(token)));
      }
    }
  }
  for (const [name, key] of Object.entries(numbered))
    yield shape(name, () => Buffer.from(withKeys(filled((index) => `,"${key(index)}":0`))));
  yield shape('nothing', () => Buffer.alloc(0));
  yield shape('zero bytes', () => Buffer.alloc(LARGEST));
  yield shape('random bytes', () => randomBytes(LARGEST));
  yield shape('a frame of zstd', () => zstdCompressSync(Buffer.alloc(100_000_000)));
  for (let index = 0; index < mixtures; index += 1) {
    const random = newRandom(seed + index);
    const few = Array.from({ length: 1 + random.below(4) }, () => random.pick(tokens));
    const [structure, make] = random.pick(Object.entries(structures));
    const [encoding, encode] = random.pick(Object.entries(encodings));
    const mixed = (): string => filled(() => random.pick(few).repeat(1 + random.below(3)));
    const text = random.chance(0.5) ? mixed : () => make(few.join(''));
    yield shape(`mixture of seed ${seed + index}: ${structure}, ${encoding}`, () => encode(text()));
  }
}
