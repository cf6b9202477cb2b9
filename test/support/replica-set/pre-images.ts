/** Documents as before unacknowledged writes, for rollbacks and majority reads. */
import { BSON, type Document, type MongoClient } from 'mongodb';

interface PreImage {
  readonly database: string;
  readonly collection: string;
  readonly id: unknown;
  /** Null if the document did not exist. */
  readonly before: Document | null;
}

const WRITES = ['insert', 'update', 'delete', 'findAndModify'] as const;

export class PreImages {
  readonly #client: MongoClient;
  readonly #images = new Map<string, PreImage>();
  /** One write at a time, so that each reads what it changes. */
  #last: Promise<unknown> = Promise.resolve();

  /** `client` has a direct connection to the store. */
  constructor(client: MongoClient) {
    this.#client = client;
  }

  /** Runs `write` after reading the documents that `command` may change. */
  async around<T>(command: Document, write: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(async () => {
      await this.#remember(command);
      return write();
    });
    this.#last = turn.catch(() => undefined);
    return turn;
  }

  /** Restores all documents and forgets them. */
  async restore(): Promise<void> {
    await this.#last;
    // New documents go first, because they may hold a unique key of an old one.
    const images = [...this.#images.values()].toSorted(
      (one, other) => Number(one.before !== null) - Number(other.before !== null),
    );
    for (const { database, collection, id, before } of images) {
      const documents = this.#client.db(database).collection(collection);
      const filter = { _id: id } as Document;
      if (before === null) await documents.deleteOne(filter);
      else await documents.replaceOne(filter, before, { upsert: true });
    }
    this.forget();
  }

  forget(): void {
    this.#images.clear();
  }

  /** Returns the documents of a read that have not changed since. */
  async unchanged(
    database: string,
    collection: string,
    found: readonly Document[],
  ): Promise<Document[]> {
    const kept: Document[] = [];
    for (const document of found) {
      const image = this.#images.get(keyOf(database, collection, document['_id']));
      if (image === undefined) kept.push(document);
      else if (image.before !== null) {
        const now = await this.#client
          .db(database)
          .collection(collection)
          .findOne({ _id: image.id } as Document);
        if (now !== null && Buffer.compare(BSON.serialize(now), BSON.serialize(image.before)) === 0)
          kept.push(document);
      }
    }
    return kept;
  }

  async #remember(command: Document): Promise<void> {
    const kind = WRITES.find((name) => name in command);
    if (kind === undefined) return;
    const plain = BSON.deserialize(BSON.serialize(command, { ignoreUndefined: true }));
    const [database, collection] = [String(plain['$db']), String(plain[kind])];
    const documents = this.#client.db(database).collection(collection);
    const ids: unknown[] = [];
    for (const filter of filtersOf(kind, plain)) {
      const { _id: id } = filter;
      if (typeof id === 'string') ids.push(id);
      else if (Array.isArray(id?.$in)) ids.push(...id.$in);
      else
        for (const found of await documents.find(filter, { projection: { _id: 1 } }).toArray())
          ids.push(found._id);
    }
    const unknown = ids.filter((id) => !this.#images.has(keyOf(database, collection, id)));
    const found = await documents.find({ _id: { $in: unknown } } as Document).toArray();
    const byKey = new Map(
      found.map((document) => [keyOf(database, collection, document._id), document]),
    );
    for (const id of unknown) {
      const key = keyOf(database, collection, id);
      this.#images.set(key, { database, collection, id, before: byKey.get(key) ?? null });
    }
  }
}

function filtersOf(kind: (typeof WRITES)[number], command: Document): Document[] {
  if (kind === 'insert') return command['documents'].map(({ _id }: Document) => ({ _id }));
  if (kind === 'update') return command['updates'].map(({ q }: Document) => q);
  if (kind === 'delete') return command['deletes'].map(({ q }: Document) => q);
  return [command['query']];
}

function keyOf(database: string, collection: string, id: unknown): string {
  return `${database}.${collection} ${BSON.EJSON.stringify({ id })}`;
}
