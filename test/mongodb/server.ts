/**
 * The MongoDB of MONGODB_URI: whether it is what these tests are about, and its own fail points.
 */
import { MongoClient, MongoServerError, type Document } from 'mongodb';

const ANSWER_TIMEOUT_MS = 10_000;
/** What a server says that was started without `--setParameter enableTestCommands=1`. */
const COMMAND_NOT_FOUND = 59;

export type Server =
  | { readonly kind: 'replica set'; readonly version: string; readonly takesFailPoints: boolean }
  | { readonly kind: 'unfit'; readonly reason: string };

/** A stand-in such as FerretDB has no `setName`, and would prove nothing of MongoDB. */
export async function askServer(uri: string | undefined): Promise<Server> {
  if (uri === undefined || uri === '') return { kind: 'unfit', reason: 'MONGODB_URI is not set' };
  const client = new MongoClient(uri, { serverSelectionTimeoutMS: ANSWER_TIMEOUT_MS });
  try {
    const admin = client.db('admin');
    const hello = await admin.command({ hello: 1 });
    const build = await admin.command({ buildInfo: 1 });
    if (typeof hello['setName'] !== 'string' || 'ferretdb' in build) {
      return { kind: 'unfit', reason: 'MONGODB_URI is not a replica set of MongoDB' };
    }
    return {
      kind: 'replica set',
      version: String(build['version']),
      takesFailPoints: await takesFailPoints(client),
    };
  } catch (error) {
    return { kind: 'unfit', reason: `MONGODB_URI does not answer: ${String(error)}` };
  } finally {
    await client.close();
  }
}

async function takesFailPoints(client: MongoClient): Promise<boolean> {
  try {
    await client.db('admin').command({ configureFailPoint: 'failCommand', mode: 'off' });
    return true;
  } catch (error) {
    if (error instanceof MongoServerError && error.code === COMMAND_NOT_FOUND) return false;
    throw error;
  }
}

/**
 * Makes the server fail commands on the requests of one database; `mode` is `alwaysOn` or `{ times:
 * n }`.
 */
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

if (import.meta.main) {
  const server = await askServer(process.env['MONGODB_URI']);
  if (server.kind === 'unfit') {
    console.error(`not run: these tests need a replica set of MongoDB: ${server.reason}`);
    process.exitCode = 1;
  } else {
    const without = 'without fail points: start it with --setParameter enableTestCommands=1';
    console.log(
      `MongoDB ${server.version}, ${server.takesFailPoints ? 'with fail points' : without}`,
    );
  }
}
