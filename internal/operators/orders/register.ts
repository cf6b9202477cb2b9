/**
 * The erasure register: what operators ended for good, in a folder outside the database, so that it
 * can be repeated after a restore.
 *
 * Each process appends to a file of its own, because on a shared file system two appends to one
 * file may overwrite each other. An entry is on the disk before its order begins. Of an erasure it
 * has the keyed digest of the request's id; no entry has personal data.
 */
import { createHmac } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { Clock } from '../../platform/process/clock.ts';
import { withDeadline } from '../../platform/process/deadline.ts';
import { newId } from '../../platform/stores/ids.ts';
import { OrderRefused } from './order-refused.ts';
import { piecesOf } from './pieces.ts';

const FILE = /^reg_\w+\.ndjson$/;
const WRITE_WITHIN_MS = 10_000;
/** Longer than any entry. */
const MAX_LINE = 4_096;
const LINE = /[^\n]+|\n/g;
/** A digest takes 100 bytes of the command's memory. */
const MAX_ERASURES = 1_000_000;
const DIGEST_BYTES = 16;

const erasures = ['erase', 'erase body'] as const;
export type ErasureKind = (typeof erasures)[number];
/** Orders that are repeated as they were given, by their names in the trail. */
const repeated = [
  'keys revoke',
  'partner disable',
  'partner enable',
  'partner hold',
  'partner release',
  'aside',
] as const;
export type RepeatedOrder = (typeof repeated)[number];

const isRepeated = (name: string): name is RepeatedOrder =>
  (repeated as readonly string[]).includes(name);

const entry = z.object({
  /** When its order began. */
  at: z.iso.datetime(),
  act: z.enum([...erasures, ...repeated]),
  /** The digest of a request's id, or the id of a partner, a key, or what was put aside. */
  of: z.string(),
  /** The order that began then was not done. */
  left: z.literal(true).optional(),
});
type RegisterEntry = z.output<typeof entry>;

interface RegisterOptions {
  readonly folder: string;
  /** With it one can tell whether an id was erased. Undefined in a pod without the register. */
  readonly key: string | undefined;
  readonly clock: Clock;
  /** Told when an entry finds the register empty, which it is also if it was lost. */
  readonly note: (text: string) => void;
}

/** What the register says, oldest first where order counts. */
export interface Registered {
  readonly isErased: (kind: ErasureKind, requestId: string) => boolean;
  readonly orders: readonly { readonly name: RepeatedOrder; readonly of: string }[];
  readonly erasures: number;
  readonly files: number;
  /** Lines that end too early, as after a crash or on a full disk. */
  readonly cut: number;
  /** Lines that were changed, or are of another key. */
  readonly foreign: number;
}

export class Register {
  readonly #options: RegisterOptions;
  #path: string | undefined;

  constructor(options: RegisterOptions) {
    this.#options = options;
  }

  /** Notes the erasure, then does it; `act` returns false if it was not done. */
  erasing(kind: ErasureKind, requestId: string, act: () => Promise<boolean>): Promise<boolean> {
    return this.#noting(kind, this.#digest(requestId), act);
  }

  /** The same for an order of this name, if it is one to be repeated. */
  ordering(name: string, of = '', act: () => Promise<boolean>): Promise<boolean> {
    return isRepeated(name) ? this.#noting(name, of, act) : act();
  }

  async #noting(
    act: RegisterEntry['act'],
    of: string,
    carryOut: () => Promise<boolean>,
  ): Promise<boolean> {
    const one = { at: this.#options.clock.now().toISOString(), act, of };
    await this.#append(one);
    const isDone = await carryOut();
    // What failed with an error may be done, so it stays noted.
    if (!isDone) await this.#append({ ...one, left: true });
    return isDone;
  }

  /** Rejects with `OrderRefused` if the register is not there. */
  async isEmpty(): Promise<boolean> {
    return (await this.#files()).length === 0;
  }

  /** Entries of `since` or later. Rejects with `OrderRefused` if it cannot be read. */
  async read(since: Date = new Date(0)): Promise<Registered> {
    const counts = { erase: new Map<string, number>(), 'erase body': new Map<string, number>() };
    const orders: RegisterEntry[] = [];
    const left = { cut: 0, foreign: 0 };
    const files = await this.#files();
    for (const file of files) {
      for await (const line of this.#lines(file)) {
        const one = this.#entryIn(line);
        if (typeof one === 'string') left[one] += 1;
        else if (new Date(one.at) < since) continue;
        else if (isRepeated(one.act)) orders.push(one);
        else count(counts[one.act], one);
      }
    }
    return {
      isErased: (kind, requestId) => (counts[kind].get(packed(this.#digest(requestId))) ?? 0) > 0,
      orders: lastOf(orders),
      erasures: counts.erase.size + counts['erase body'].size,
      files: files.length,
      ...left,
    };
  }

  async #files(): Promise<string[]> {
    this.#key();
    try {
      const names = await withDeadline(readdir(this.#options.folder), WRITE_WITHIN_MS, 'reading');
      return names.filter((name) => FILE.test(name)).toSorted();
    } catch (error) {
      throw this.#fault('read', error);
    }
  }

  async *#lines(file: string): AsyncGenerator<string> {
    const path = join(this.#options.folder, file);
    const input = createReadStream(path, 'utf8');
    try {
      for await (const line of piecesOf(input, LINE, MAX_LINE)) if (line !== '\n') yield line;
    } catch (error) {
      throw this.#fault('read', error);
    } finally {
      input.destroy();
    }
  }

  #entryIn(line: string): RegisterEntry | 'cut' | 'foreign' {
    if (line.length > MAX_LINE) return 'foreign';
    const [, json = '', mac] = /^(\{.*\}) ([\w-]{22})$/.exec(line) ?? [];
    if (mac === undefined) return 'cut';
    if (mac !== this.#mac(json)) return 'foreign';
    return entry.safeParse(JSON.parse(json)).data ?? 'foreign';
  }

  async #append(one: RegisterEntry): Promise<void> {
    const json = JSON.stringify(one);
    // Another append to this file may have been cut off, so the line begins with a line feed, too.
    const line = Buffer.from(`\n${json} ${this.#mac(json)}\n`);
    try {
      await withDeadline(this.#write(line), WRITE_WITHIN_MS, 'writing');
    } catch (error) {
      // What was written may be cut off, so the next entry begins another file.
      this.#path = undefined;
      throw this.#fault('written', error);
    }
  }

  async #write(line: Buffer): Promise<void> {
    const { folder, clock, note } = this.#options;
    if (await this.isEmpty()) note(EMPTY);
    this.#path ??= join(folder, `${newId('reg', clock.now())}.ndjson`);
    const file = await open(this.#path, 'a', 0o640);
    try {
      const { bytesWritten } = await file.write(line);
      if (bytesWritten < line.length) throw new Error('the line was cut off');
      await file.sync();
    } finally {
      await file.close();
    }
    // The file's name is on the disk only with its folder; somebody may have deleted an older file.
    const directory = await open(folder, 'r');
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
  }

  #fault(what: 'read' | 'written', error: unknown): OrderRefused {
    if (error instanceof OrderRefused) return error;
    const { code, message } = error as NodeJS.ErrnoException;
    const { folder } = this.#options;
    return new OrderRefused(
      `the erasure register ${folder} cannot be ${what} (${code ?? message}): nothing more was done`,
    );
  }

  #digest(requestId: string): string {
    return this.#hmac('request', requestId).toString('base64url');
  }

  #mac(json: string): string {
    return this.#hmac('entry', json).toString('base64url');
  }

  #key(): string {
    const { key } = this.#options;
    if (key === undefined) throw new OrderRefused(NOT_HERE);
    return key;
  }

  #hmac(what: string, text: string): Buffer {
    return createHmac('sha256', this.#key())
      .update(`${what}\n${text}`)
      .digest()
      .subarray(0, DIGEST_BYTES);
  }
}

const NOT_HERE =
  'the erasure register is not in this pod, and would not note it: run it in a pod of the processor or the console';

export const EMPTY =
  'the erasure register is empty: if it had entries before, it is lost, and a restore brings back what they name';

/** Undefined where none is named. */
export function registerOf(
  config: {
    readonly ERASURE_REGISTER?: string | undefined;
    readonly ERASURE_REGISTER_KEY?: string | undefined;
  },
  tools: Pick<RegisterOptions, 'clock' | 'note'>,
): Register | undefined {
  const { ERASURE_REGISTER: folder, ERASURE_REGISTER_KEY: key } = config;
  return folder === undefined ? undefined : new Register({ folder, key, ...tools });
}

/** Erasures less those that were not done, whatever their order. */
function count(digests: Map<string, number>, { of, left }: RegisterEntry): void {
  const digest = packed(of);
  digests.set(digest, (digests.get(digest) ?? 0) + (left ? -1 : 1));
  if (digests.size > MAX_ERASURES)
    throw new OrderRefused(
      `the erasure register names more than ${MAX_ERASURES} requests: give --since, the time of the backup`,
    );
}

/** One byte a character. */
const packed = (digest: string): string => Buffer.from(digest, 'base64url').toString('latin1');

const UNDONE_BY: Readonly<Record<string, string>> = {
  'partner enable': 'partner disable',
  'partner release': 'partner hold',
};

/** Of the orders about one subject that were done, only the last counts. */
function lastOf(orders: readonly RegisterEntry[]): Registered['orders'] {
  const nameOf = ({ act, of, at }: RegisterEntry): string => `${act} ${of} ${at}`;
  const left = new Set(orders.flatMap((one) => (one.left ? [nameOf(one)] : [])));
  const last = new Map<string, RegisterEntry>();
  for (const one of orders.toSorted((a, b) => (a.at < b.at ? -1 : 1))) {
    const subject = `${UNDONE_BY[one.act] ?? one.act} ${one.of}`;
    if (left.has(nameOf(one))) continue;
    last.delete(subject);
    last.set(subject, one);
  }
  return [...last.values()].flatMap(({ act: name, of }) =>
    isRepeated(name) ? [{ name, of }] : [],
  );
}
