/** The MongoDB of MONGODB_URI and its fail points. */
import { MongoClient, type Document } from 'mongodb';

const ANSWER_TIMEOUT_MS = 10_000;

/** Rejects a server that is no replica set of MongoDB. Resolves to whether it has test commands. */
export async function takesFailPoints(uri: string): Promise<boolean> {
  const client = new MongoClient(uri, { serverSelectionTimeoutMS: ANSWER_TIMEOUT_MS });
  try {
    const admin = client.db('admin');
    const hello = await admin.command({ hello: 1 });
    if (
      typeof hello['setName'] !== 'string' ||
      'ferretdb' in (await admin.command({ buildInfo: 1 }))
    )
      throw new Error('MONGODB_URI is not a replica set of MongoDB');
    return await endFault(client).then(
      () => true,
      () => false,
    );
  } finally {
    await client.close();
  }
}

/** Makes the server fail commands of one database; `mode` is `alwaysOn` or `{ times: n }`. */
export async function failWrites(
  client: MongoClient,
  database: string,
  mode: 'alwaysOn' | { readonly times: number },
  fault: Document,
): Promise<void> {
  const failCommands = ['insert', 'update', 'findAndModify'];
  const data = { failCommands, namespace: `${database}.requests`, ...fault };
  await client.db('admin').command({ configureFailPoint: 'failCommand', mode, data });
}

export async function endFault(client: MongoClient): Promise<void> {
  await client.db('admin').command({ configureFailPoint: 'failCommand', mode: 'off' });
}
