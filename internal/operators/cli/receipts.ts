/** The commands about receipts: keys that sign them, one against its body, many after a restore. */
import { generateKeyPairSync } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { printable } from '../../application/fields.ts';
import { TESTS_KEPT_SECONDS } from '../../partner/key-terms.ts';
import { type Clock, DAY_MS, later } from '../../platform/process/clock.ts';
import {
  bodyFault,
  checkReceipt,
  KeySetError,
  readKeySet,
  signingKey,
  type Receipt,
  type ReceiptKeys,
} from '../../receipt/receipt.ts';
import { piecesOf } from '../orders/pieces.ts';
import type { Registered } from '../orders/register.ts';
import { utcSeconds } from '../view/words.ts';
import {
  CommandError,
  EXIT,
  receiptFile,
  UsageError,
  type Call,
  type Command,
  type CommandStores,
  type Lines,
} from './command.ts';
import { manifestText } from './secret-manifest.ts';

/** No set, body or receipt is larger. */
const MAX_FILE_BYTES = 1024 * 1024;
/** Longer than any receipt. */
const MAX_PIECE = 8_192;
const PIECE = /[\w.-]+|\n/g;
/** Every receipt begins so, as every JSON object in base64url does. */
const BEGINS = 'eyJ';
/** One look at the database. */
const PAGE = 500;
/** Longer than caches keep the published set, and than a rollout takes. */
const PUBLISHED_BEFORE_MS = DAY_MS;
const SECRET = 'partner-ingest-receipts';

/** Makes a key and the manifest of the Secret with all keys; needs no store. */
export const receiptKeys: Command = {
  name: 'receipt keys',
  positionals: [],
  options: ['issuer', 'beside', 'namespace'],
  run: async ({ values, note, clock }) => {
    const { issuer, beside, namespace, json } = values;
    if ((issuer === undefined) === (beside === undefined))
      throw new UsageError('receipt keys: give one of --issuer and --beside');
    const now = clock.now();
    const before = beside === undefined ? undefined : await keySetOf(beside);
    const signing = before && signingKey(before.keys, now);
    const kept = (before?.keys ?? []).map((key) => ({
      ...key.jwk,
      // A key that no longer signs needs no private half, so nobody can forge with it.
      ...(key === signing || key.notBefore > now ? key.privateKey?.export({ format: 'jwk' }) : {}),
      not_before: key.notBefore.toISOString(),
    }));
    const from = signing === undefined ? now : later(now, PUBLISHED_BEFORE_MS);
    const made = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
    const set = {
      issuer: issuer ?? before?.issuer,
      keys: [...kept, { ...made.export({ format: 'jwk' }), not_before: from.toISOString() }],
    };
    const manifest = {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: SECRET, ...(namespace === undefined ? {} : { namespace }) },
      stringData: { 'keys.json': JSON.stringify(set) },
    };
    if (!json)
      note(`the new key signs from ${utcSeconds(from)} UTC on; restart every ingest to publish it`);
    return { json: { manifest, not_before: from }, text: manifestText(manifest) };
  },
};

export const receiptVerify: Command = {
  name: 'receipt verify',
  positionals: [receiptFile],
  options: ['keys', 'body'],
  run: async ({ positionals: [file = ''], values }) => {
    const keys = await givenKeys('receipt verify', values.keys);
    const { receipt, fault } = checkReceipt((await read(file)).toString().trim(), keys);
    if (receipt === undefined) throw new CommandError(`the receipt ${fault}`);
    const body = values.body === undefined ? undefined : await read(values.body);
    const wrong = body && bodyFault(receipt, body);
    const { request_id: id, partner, received_at: at, body_length: bytes, test } = receipt;
    if (wrong !== undefined)
      throw new CommandError(
        `the receipt of ${id} is genuine, but it is not of this body: ${wrong}`,
      );
    const what = body === undefined ? `a body of ${bytes} bytes (give --body)` : 'this body';
    const kind = test ? ', as a test' : '';
    return {
      json: { ...receipt, body_checked: body !== undefined },
      text: printable(
        `genuine: ${receipt.iss} received ${what} from ${partner} at ${at} as ${id}${kind}`,
      ),
    };
  },
};

interface ListedReceipt {
  readonly result: 'missing' | 'refused';
  /** Of the file. */
  readonly line: number;
  readonly why?: string;
}

export const receiptMissing: Command = {
  name: 'receipt missing',
  positionals: [receiptFile],
  options: ['keys', 'since', 'until'],
  run: async (call) => {
    const keys = await givenKeys('receipt missing', call.values.keys);
    const counts = { looked: 0, missing: 0, refused: 0, erased: 0, pastRetention: 0, without: 0 };
    const lines = missingIn(call, keys, counts);
    const { textOf, end } = wordsOf(counts);
    return { lines, textOf, end } as Lines;
  },
};

type ReceiptSums = Record<
  'looked' | 'missing' | 'refused' | 'erased' | 'pastRetention' | 'without',
  number
>;
type MissingLine = ListedReceipt & Partial<Receipt>;

function wordsOf(counts: ReceiptSums): Required<Omit<Lines<MissingLine>, 'lines'>> {
  return {
    textOf: ({ result, line, why, ...receipt }) => {
      const { request_id: id, partner, received_at: at, body_sha256: digest } = receipt;
      return printable(
        result === 'refused'
          ? `line ${line}: refused: it ${why}`
          : `${id}  ${partner}  ${at}  sha256 ${digest}  missing${receipt.test ? ' (a test)' : ''}`,
      );
    },
    end: () => {
      const { looked, missing, refused, erased, pastRetention, without } = counts;
      const more = [
        erased > 0 && `${erased} were erased since, and must not be sent again`,
        pastRetention > 0 && `${pastRetention} older ones may have passed their retention`,
        without > 0 && `${without} lines held none`,
      ].filter((one) => one !== false);
      const sums = `${looked} receipts: ${missing} missing, ${refused} refused`;
      const isWhole = looked > 0 && missing + refused === 0;
      return { notes: [[sums, ...more].join('; ')], code: isWhole ? EXIT.ok : EXIT.found };
    },
  };
}

/** Lists what was receipted and is not stored, or cannot be believed; one look for each page. */
async function* missingIn(
  call: Call,
  keys: ReceiptKeys,
  counts: ReceiptSums,
): AsyncGenerator<MissingLine> {
  const { since, until } = call.values;
  const search = {
    counts,
    told: new Set<string>(),
    register: await call.stores.register?.read(since),
  };
  let page = new Map<string, ListedReceipt & Receipt>();
  for await (const { text, line } of receiptsIn(call.positionals[0] ?? '', counts)) {
    counts.looked += 1;
    const { receipt, fault } = checkReceipt(text, keys);
    if (receipt === undefined) {
      counts.refused += 1;
      yield { result: 'refused', line, why: fault };
      continue;
    }
    const at = new Date(receipt.received_at);
    if ((since && at < since) || (until && at >= until)) continue;
    if (search.told.has(receipt.request_id)) continue;
    page.set(receipt.request_id, { result: 'missing', line, ...receipt });
    if (page.size < PAGE) continue;
    yield* missingOf(page, call, search);
    page = new Map();
  }
  yield* missingOf(page, call, search);
}

interface LostSearch {
  readonly counts: ReceiptSums;
  /** What was not found; a repeat of a request has a receipt of the first. */
  readonly told: Set<string>;
  /** Undefined where there is none. */
  readonly register: Registered | undefined;
}

async function* missingOf(
  page: ReadonlyMap<string, ListedReceipt & Receipt>,
  { stores, clock }: Call,
  { counts, told, register }: LostSearch,
): AsyncGenerator<MissingLine> {
  if (page.size === 0) return;
  const found = await stores.submissions.checked([...page.keys()]);
  const stored = new Set(found.filter(({ state }) => state !== 'withdrawn').map(({ _id }) => _id));
  for (const [id, one] of page) {
    if (stored.has(id)) continue;
    told.add(id);
    if (register?.isErased('erase', id)) counts.erased += 1;
    else if (isPastRetention(one, stores, clock)) counts.pastRetention += 1;
    else {
      counts.missing += 1;
      yield one;
    }
  }
}

function isPastRetention(
  { received_at: at, test }: Receipt,
  { acceptedKeptMs }: CommandStores,
  clock: Clock,
): boolean {
  const keptMs = test ? TESTS_KEPT_SECONDS * 1_000 : acceptedKeptMs;
  return later(new Date(at), keptMs) < clock.now();
}

/** Receipts of any text: one a line, a log, a HAR. */
async function* receiptsIn(
  path: string,
  counts: ReceiptSums,
): AsyncGenerator<{ readonly text: string; readonly line: number }> {
  let [line, isWithout, isBlank] = [1, true, true];
  for await (const piece of piecesOf(chunksOf<string>(path, 'utf8'), PIECE, MAX_PIECE)) {
    if (piece === '\n') {
      if (isWithout && !isBlank) counts.without += 1;
      [line, isWithout, isBlank] = [line + 1, true, true];
      continue;
    }
    isBlank = false;
    if (!piece.startsWith(BEGINS)) continue;
    isWithout = false;
    yield { text: piece, line };
  }
  if (isWithout && !isBlank) counts.without += 1;
}

async function givenKeys(name: string, keys: string | undefined): Promise<ReceiptKeys> {
  if (keys !== undefined) return keySetOf(keys);
  throw new UsageError(
    `${name}: --keys is missing: it is what {base_url}/capital/jwks.json answers`,
  );
}

/** A file, or the JSON itself, because a pod has no file of ours. */
async function keySetOf(given: string): Promise<ReceiptKeys> {
  try {
    return readKeySet(given.startsWith('{') ? given : (await read(given)).toString());
  } catch (error) {
    if (error instanceof KeySetError) throw new CommandError(`the set of keys ${error.message}`);
    throw error;
  }
}

/** Bytes, or text with an encoding. */
async function* chunksOf<Chunk extends Buffer | string>(
  path: string,
  encoding?: 'utf8',
): AsyncGenerator<Chunk> {
  const stream = path === '-' ? process.stdin : createReadStream(path);
  if (encoding !== undefined) stream.setEncoding(encoding);
  try {
    yield* stream as AsyncIterable<Chunk>;
  } catch (error) {
    throw new CommandError(`${path} cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
}

async function read(path: string): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of chunksOf<Buffer>(path)) {
    bytes += chunk.length;
    if (bytes > MAX_FILE_BYTES)
      throw new CommandError(`${path} has more than ${MAX_FILE_BYTES} bytes: it is something else`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
