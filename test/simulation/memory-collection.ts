/**
 * Documents in memory with MongoDB's single-document semantics, as far as our stores use them. An
 * unknown operator is an error. test/integration/store-conformance.test.ts compares it with the
 * database. Documents are never changed in place, so reads need no copy.
 */
import { MongoServerError } from 'mongodb';

export type Document = Record<string, unknown>;
export interface Stored extends Document {
  _id: string;
}

export interface FindOptions {
  readonly projection?: Document | undefined;
  readonly sort?: Readonly<Record<string, 1 | -1>> | undefined;
  readonly limit?: number | undefined;
}

export interface UpdateOptions {
  readonly upsert?: boolean | undefined;
  /** Says whether the write survives a crash. */
  readonly durable?: boolean;
}

interface UpdateOutcome {
  readonly matchedCount: number;
  readonly upsertedCount: number;
  readonly after: Stored | undefined;
}

const DUPLICATE_KEY = 11_000;

export class MemoryCollection {
  readonly #documents = new Map<string, Stored>();
  /** Documents from before the writes that are not durable. */
  readonly #rollBackTo = new Map<string, Stored | undefined>();
  /** Unique paths; documents without them may repeat. */
  unique: readonly string[];
  /** Called after each write with both versions of the document. */
  onWrite: ((after: Stored, before: Stored | undefined) => void) | undefined;
  onDelete: ((before: Stored) => void) | undefined;

  constructor(unique: readonly string[] = []) {
    this.unique = unique;
  }

  all(): readonly Stored[] {
    return [...this.#documents.values()];
  }

  get(id: string): Stored | undefined {
    return this.#documents.get(id);
  }

  insert(document: Stored, { durable = true }: UpdateOptions = {}): void {
    if (this.#documents.has(document._id)) throw duplicateKey('_id');
    this.#write(copy(document), undefined, durable);
  }

  find(filter: Document, options: FindOptions = {}): Stored[] {
    const found = this.#candidates(filter).filter((document) => matches(document, filter));
    for (const [path, direction] of Object.entries(options.sort ?? {}).toReversed()) {
      found.sort((one, other) => direction * compare(rank(get(one, path)), rank(get(other, path))));
    }
    return found
      .slice(0, options.limit ?? found.length)
      .map((document) => project(document, options.projection));
  }

  update(filter: Document, update: Document, options: UpdateOptions = {}): UpdateOutcome {
    const { durable = true } = options;
    const before = this.#candidates(filter).find((document) => matches(document, filter));
    if (before !== undefined) {
      const after = updated(before, update, false);
      this.#write(after, before, durable);
      return { matchedCount: 1, upsertedCount: 0, after };
    }
    if (options.upsert !== true) return { matchedCount: 0, upsertedCount: 0, after: undefined };
    const equalities = Object.entries(filter).filter(
      ([path, value]) => !path.startsWith('$') && !isOperators(value),
    );
    const made = updated(Object.fromEntries(equalities) as Stored, update, true);
    this.insert(made, options);
    return { matchedCount: 0, upsertedCount: 1, after: made };
  }

  delete(filter: Document, { durable = true }: UpdateOptions = {}): number {
    const found = this.#candidates(filter).find((document) => matches(document, filter));
    if (found === undefined) return 0;
    this.#noteDurability(found._id, found, durable);
    this.#documents.delete(found._id);
    this.onDelete?.(found);
    return 1;
  }

  /** Returns how many matched. */
  deleteAll(filter: Document, options: UpdateOptions = {}): number {
    const found = this.#candidates(filter).filter((document) => matches(document, filter));
    for (const { _id } of found) this.delete({ _id }, options);
    return found.length;
  }

  /** Candidates of a filter: one document if it names an id. */
  #candidates({ _id: id }: Document): readonly Stored[] {
    if (typeof id !== 'string') return this.all();
    const document = this.#documents.get(id);
    return document === undefined ? [] : [document];
  }

  /** A crash: the new server lacks all writes after the last durable one. */
  rollBack(): void {
    for (const [id, before] of this.#rollBackTo) {
      if (before === undefined) this.#documents.delete(id);
      else this.#documents.set(id, before);
    }
    this.#rollBackTo.clear();
  }

  /** A durable write makes all earlier ones durable. */
  #noteDurability(id: string, before: Stored | undefined, durable: boolean): void {
    if (durable) this.#rollBackTo.clear();
    else if (!this.#rollBackTo.has(id)) this.#rollBackTo.set(id, before);
  }

  #write(after: Stored, before: Stored | undefined, durable: boolean): void {
    for (const other of this.#documents.values()) {
      if (other._id === after._id) continue;
      const taken = this.unique.find((path) => {
        const value = get(after, path);
        return value !== undefined && equal(get(other, path), value);
      });
      if (taken !== undefined) throw duplicateKey(taken);
    }
    this.#noteDurability(after._id, before, durable);
    this.#documents.set(after._id, Object.freeze(after));
    this.onWrite?.(after, before);
  }
}

function duplicateKey(key: string): MongoServerError {
  return new MongoServerError({
    message: `E11000 duplicate key error: index: ${key} dup key`,
    code: DUPLICATE_KEY,
  });
}

function matches(document: Document, filter: Document): boolean {
  return Object.entries(filter).every(([path, wanted]) => {
    if (path === '$or') return (wanted as Document[]).some((one) => matches(document, one));
    if (path === '$nor') return !(wanted as Document[]).some((one) => matches(document, one));
    if (path === '$and') return (wanted as Document[]).every((one) => matches(document, one));
    if (path.startsWith('$')) throw new Error(`the model knows no ${path}`);
    if (wanted === undefined) throw new Error(`undefined in a filter: ${path}`);
    const value = get(document, path);
    return isOperators(wanted)
      ? Object.entries(wanted).every(([operator, operand]) => holds(value, operator, operand))
      : equal(value, wanted);
  });
}

function holds(value: unknown, operator: string, operand: unknown): boolean {
  switch (operator) {
    case '$in':
      return (operand as unknown[]).some((one) => equal(value, one));
    case '$nin':
      return !(operand as unknown[]).some((one) => equal(value, one));
    case '$ne':
      return !equal(value, operand);
    case '$exists':
      return (value !== undefined) === operand;
    case '$lte':
      return isBelow(value, operand) || equal(value, operand);
    case '$lt':
      return isBelow(value, operand);
    case '$gte':
      return isBelow(operand, value) || equal(value, operand);
    case '$gt':
      return isBelow(operand, value);
    case '$regex':
      return typeof value === 'string' && new RegExp(operand as string).test(value);
    default:
      throw new Error(`the model knows no ${operator}`);
  }
}

function updated(before: Stored, update: Document, inserting: boolean): Stored {
  const after = { ...before };
  for (const [operator, changes] of Object.entries(update)) {
    for (const [path, value] of Object.entries(changes as Document)) {
      const present = get(after, path);
      switch (operator) {
        case '$setOnInsert':
          if (inserting) set(after, path, copy(value));
          break;
        case '$set':
          if (value !== undefined) set(after, path, copy(value));
          break;
        case '$unset':
          set(after, path, undefined);
          break;
        case '$inc':
          set(after, path, Number(present ?? 0) + Number(value));
          break;
        case '$push':
          set(after, path, [...((present as unknown[] | undefined) ?? []), copy(value)]);
          break;
        default:
          throw new Error(`the model knows no ${operator}`);
      }
    }
  }
  return after;
}

function get(document: Document, path: string): unknown {
  let value: unknown = document;
  for (const key of path.split('.')) value = (value as Document | undefined)?.[key];
  return value;
}

/** Changes `document`, and copies nested values first. */
function set(document: Document, path: string, value: unknown): void {
  const keys = path.split('.');
  const last = keys.pop()!;
  let inner = document;
  for (const key of keys) inner = inner[key] = { ...(inner[key] as Document | undefined) };
  if (value === undefined) delete inner[last];
  else inner[last] = value;
}

function project(document: Stored, projection: Document | undefined): Stored {
  if (projection === undefined) return document;
  const paths = Object.entries(projection);
  if (paths.every(([, value]) => value === 0)) {
    const kept = { ...document };
    for (const [path] of paths) set(kept, path, undefined);
    return kept;
  }
  const projected: Stored = { _id: document._id };
  for (const [path] of paths) {
    const value = get(document, path);
    if (value !== undefined) set(projected, path, value);
  }
  return projected;
}

function isOperators(value: unknown): value is Document {
  return isPlain(value) && Object.keys(value).some((key) => key.startsWith('$'));
}

function isPlain(value: unknown): value is Document {
  return (
    typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
  );
}

const rank = (value: unknown): number | string =>
  value instanceof Date ? value.getTime() : (value as number | string);
const kindOf = (value: unknown): string => (value instanceof Date ? 'date' : typeof value);

function equal(one: unknown, other: unknown): boolean {
  return kindOf(one) === kindOf(other) && rank(one) === rank(other);
}

function compare(one: number | string, other: number | string): number {
  return Number(one > other) - Number(one < other);
}

/** Values of different types are neither above nor below each other. */
function isBelow(one: unknown, other: unknown): boolean {
  const kinds = [kindOf(one), kindOf(other)];
  return kinds[0] === kinds[1] && compare(rank(one), rank(other)) < 0;
}

/** Copies a document without undefined values; dates and binaries are never changed in place. */
function copy<T>(value: T): T {
  if (Array.isArray(value)) return value.map(copy) as T;
  if (!isPlain(value)) return value;
  const copied: Document = {};
  for (const key in value) {
    const inner = value[key];
    if (inner !== undefined) copied[key] = typeof inner === 'object' ? copy(inner) : inner;
  }
  return copied as T;
}
