// MongoDB's own archive, for a machine that has no MongoDB. As a program it fetches the archive into
// a folder, so that the caller can end it.

import { mkdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { endOf } from '../../../tools/program.ts';
import { cached, installLog } from './cache.ts';
import { sizeOf } from './download.ts';
import { run } from './process.ts';

const MONGODB_VERSION = '8.2.6';
const PART = `mongodb-${MONGODB_VERSION}`;
/** Ten times what archives have. */
const MOST_BYTES = 1_000_000_000;
const FETCH_TIMEOUT_MS = 15 * 60_000;
const QUESTION_TIMEOUT_MS = 30_000;

/**
 * The mongod of the archive for this system, fetched when it is not in the cache. Throws the reason
 * where it cannot be had or does not run here. The MONGOMS_ variables of mongodb-memory-server apply,
 * as MONGOMS_DOWNLOAD_MIRROR.
 */
export async function archiveMongod(log: (line: string) => void): Promise<string> {
  const folder = await cached(PART, log, async (path) => {
    const { url } = await describe(path);
    const size = await sizeOf(url, MOST_BYTES);
    log(`fetching MongoDB ${MONGODB_VERSION} from ${new URL(url).host} (${size}, once) …`);
    await mkdir(path);
    await run({
      command: [process.execPath, fileURLToPath(import.meta.url), path],
      env: {
        // oxlint-disable-next-line node/no-process-env -- the download needs the environment as it is (proxy, mirror)
        ...process.env,
        // Otherwise the download takes any certificate.
        npm_config_strict_ssl: 'true',
        MONGOMS_USE_HTTP: String(url.startsWith('http:')),
      },
      logFile: installLog(PART),
      timeoutMs: FETCH_TIMEOUT_MS,
    });
    const mongod = join(path, 'mongod');
    const { code, err } = await endOf(mongod, ['--version'], { timeoutMs: QUESTION_TIMEOUT_MS });
    if (code !== 0) throw new Error(`MongoDB's mongod does not run here: ${err.trim()}`);
  });
  return join(folder, 'mongod');
}

/** What the download needs to know, and the address of the archive for this system. */
async function describe(downloadDir: string) {
  // Loaded late, because only a machine without a server needs it.
  const { DryMongoBinary } = await import('mongodb-memory-server-core');
  const { MongoBinaryDownloadUrl } =
    await import('mongodb-memory-server-core/lib/util/MongoBinaryDownloadUrl.js');
  const found = await DryMongoBinary.generateOptions({ version: MONGODB_VERSION });
  const options = { ...found, downloadDir };
  return { options, url: await new MongoBinaryDownloadUrl(options).getDownloadUrl() };
}

if (import.meta.main) {
  const [, , folder = ''] = process.argv;
  const { MongoBinaryDownload } =
    await import('mongodb-memory-server-core/lib/util/MongoBinaryDownload.js');
  const { options } = await describe(folder);
  await rename(await new MongoBinaryDownload(options).getMongodPath(), join(folder, 'mongod'));
}
