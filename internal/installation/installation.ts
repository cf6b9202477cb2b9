/**
 * The document by which an installation knows itself. Any process makes it; all follow it. Only
 * controllers of its source of keys may lead, and only an operator's order changes that source.
 */
import { randomBytes } from 'node:crypto';
import type { Collection, Db } from 'mongodb';
import type { Clock } from '../platform/process/clock.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { defined } from '../platform/process/defined.ts';
import { refuseNewer, type Fault } from '../platform/process/fault.ts';
import type { Loops } from '../platform/process/loop.ts';
import { unlessDuplicate } from '../platform/stores/mongo.ts';

export const INSTALLATION = 'installation';
const SCHEMA = 1;
const ID = 'installation';
const ID_BYTES = 6;
const CALL_TIMEOUT_MS = 3_000;
/** A process takes up another id or source within this time. */
const FOLLOW_EVERY_MS = 10_000;
const FOLLOW_FAILS_MS = 60_000;

/** `namespace:NAME`, or `directory:PATH` for a folder: a folder is known by its path. */
export type KeysOf = `${'namespace' | 'directory'}:${string}`;

export const isKeysOf = (text: string): text is KeysOf =>
  /^(?:namespace:[a-z0-9-]{1,63}|directory:\/.*)$/.test(text);

export interface InstallationDocument {
  readonly _id: typeof ID;
  readonly schema?: number;
  /** Part of all names in Redis; a move changes it. */
  readonly id: string;
  /** Another one after the database was emptied and a process put the document back. */
  readonly madeAt?: Date;
  /** Whose controllers may lead. Absent until the first one leads. */
  readonly keysOf?: KeysOf;
  /** The controller of another source that last asked to lead. */
  readonly refused?: { readonly keysOf: KeysOf; readonly at: Date };
}

type Identity = Pick<InstallationDocument, 'id' | 'keysOf'>;
type Known = Identity & Pick<InstallationDocument, 'madeAt'>;

export const newInstallationId = (): string => randomBytes(ID_BYTES).toString('hex');

export class InstallationStore {
  readonly #documents: Collection<InstallationDocument>;
  readonly #clock: Clock;

  constructor({ db, clock }: { readonly db: Db; readonly clock: Clock }) {
    this.#documents = db.collection<InstallationDocument>(INSTALLATION);
    this.#clock = clock;
  }

  /** Sees only what a failover cannot take back. Rejects with `NewerVersionError`. */
  async read(): Promise<InstallationDocument | undefined> {
    const options = { maxTimeMS: CALL_TIMEOUT_MS, readConcern: { level: 'majority' } } as const;
    const found = await call(this.#documents.findOne({ _id: ID }, options));
    if (found !== null) refuseNewer('the installation', found, SCHEMA);
    return found ?? undefined;
  }

  /** False if there is one. */
  make({ id, keysOf }: Identity): Promise<boolean> {
    const madeAt = this.#clock.now();
    const made = { _id: ID, schema: SCHEMA, id, madeAt, ...defined({ keysOf }) } as const;
    return unlessDuplicate(call(this.#documents.insertOne(made)));
  }

  /** False if another source has it, or the document is gone. */
  async claim(keysOf: KeysOf): Promise<boolean> {
    const unclaimed = { _id: ID, keysOf: { $exists: false } } as const;
    const { matchedCount } = await call(this.#documents.updateOne(unclaimed, { $set: { keysOf } }));
    return matchedCount === 1;
  }

  /** Notes for the owner that a controller of `keysOf` asked to lead. */
  async noteRefused(keysOf: KeysOf): Promise<void> {
    const refused = { keysOf, at: this.#clock.now() };
    await call(this.#documents.updateOne({ _id: ID }, { $set: { refused } }));
  }

  /** False if the document is no longer as it was read. */
  async move(seen: Identity | undefined, keysOf: KeysOf): Promise<boolean> {
    const id = newInstallationId();
    if (seen === undefined) return this.make({ id, keysOf });
    const was = seen.keysOf ?? { $exists: false };
    const { matchedCount } = await call(
      this.#documents.updateOne(
        { _id: ID, id: seen.id, keysOf: was },
        { $set: { id, keysOf }, $unset: { refused: '' } },
      ),
    );
    return matchedCount === 1;
  }
}

const call = <T>(promise: Promise<T>): Promise<T> =>
  withDeadline(promise, CALL_TIMEOUT_MS, 'a call about the installation');

/** Follows the document, and makes it where there is none. */
export class Installation {
  readonly store: InstallationStore;
  /** Resolves once the id is known. */
  readonly known: Promise<void>;
  readonly #changed: ((id: string) => void)[] = [];
  readonly #contact: { again(): void };
  #last: Known | undefined;

  constructor(tools: {
    readonly db: Db;
    readonly clock: Clock;
    readonly loops: Pick<Loops<'installation'>, 'start'>;
    /** `again` is called once the document was put back: what was stored with it may be gone. */
    readonly contact: { again(): void };
  }) {
    this.store = new InstallationStore(tools);
    this.#contact = tools.contact;
    const { succeeded } = tools.loops.start({
      name: 'installation',
      needed: true,
      everyMs: FOLLOW_EVERY_MS,
      retry: { firstMs: 250, capMs: 5_000 },
      failsAfterMs: FOLLOW_FAILS_MS,
      run: () => this.#follow(),
    });
    this.known = succeeded;
  }

  get id(): string | undefined {
    return this.#last?.id;
  }

  readonly faults = (): readonly Fault[] => {
    const words = 'the id of the installation has not been read yet';
    return this.#last === undefined ? [{ code: 'installation_unread', words }] : [];
  };

  /** Empty where processes of this namespace may act on the database, or that is unknown. */
  foreign(namespace: string | undefined): readonly Fault[] {
    const { keysOf = '' } = this.#last ?? {};
    const mine: KeysOf = `namespace:${namespace}`;
    const isTold = namespace !== undefined && keysOf.startsWith('namespace:');
    return isTold && keysOf !== mine ? [foreignFault(keysOf, mine)] : [];
  }

  /** Calls `use` with the id, and again with each other one. */
  follow(use: (id: string) => void): void {
    this.#changed.push(use);
    if (this.id !== undefined) use(this.id);
  }

  async #follow(): Promise<void> {
    let found = await this.store.read();
    // Where it was deleted, any process that runs puts back what all of them know.
    if (found === undefined) {
      await this.store.make(this.#last ?? { id: newInstallationId() });
      found = await this.store.read();
    }
    if (found === undefined) throw new Error('the installation is not yet durable');
    const before = this.#last;
    this.#last = found;
    if (before !== undefined && found.madeAt?.getTime() !== before.madeAt?.getTime())
      this.#contact.again();
    if (found.id !== before?.id) for (const use of this.#changed) use(found.id);
  }
}

/** The words for a source of keys. */
export const sourceWords = (keysOf: string): string =>
  keysOf
    .replace(/^namespace:/, 'namespace ')
    .replace(/^directory:?/, 'folder ')
    .trim();

export const foreignFault = (owner: string, mine: KeysOf): Fault => ({
  code: 'foreign_database',
  of: owner,
  words: `this database belongs to the installation whose partner keys are in ${sourceWords(owner)}, and this process is of ${sourceWords(mine)}: set another MONGODB_DATABASE, or give the order "installation move"`,
});

/* Names in Redis: each carries the installation's id, so that several may share a server. */

/** What users of Redis need to know of the installation. */
export interface KnownInstallation {
  /** Undefined until the database was read once: then no name in Redis is known. */
  readonly id?: string | undefined;
}

export const redisName = (id: string, name: string): string => `partner-ingest:${id}:${name}`;

/** BullMQ's prefix; the braces keep all keys of a queue in one slot of a Redis Cluster. */
export const queuePrefix = (id: string): string => `partner-ingest:{${id}}`;
