/** Go, which builds programs: that of the PATH, else the one that the module proxy keeps. */
/* oxlint-disable node/no-process-env -- GOPROXY is a setting of the person */
import { createWriteStream } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { openPromise } from 'yauzl';
import { cached } from '../deploy/local/stores/cache.ts';
import { download, megabytes } from '../deploy/local/stores/download.ts';
import { findProgram } from '../deploy/local/stores/process.ts';
import { messageOf } from '../deploy/local/stores/wait.ts';
import { endOf } from './program.ts';

const MINOR = 26;
const VERSION = `1.${MINOR}.8`;
/** The archives by Node's name of the processor. Go's checksum database has the same content. */
const ARCHIVES: Readonly<
  Record<string, { readonly name: string; readonly bytes: number; readonly sha256: string }>
> = {
  x64: {
    name: `v0.0.1-go${VERSION}.linux-amd64`,
    bytes: 71_680_185,
    sha256: '30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7',
  },
  arm64: {
    name: `v0.0.1-go${VERSION}.linux-arm64`,
    bytes: 68_581_891,
    sha256: '02b36b6787b3ac767668f630e2998df45a3b1f9ffee08d1bf3ef6487cd658d99',
  },
};
/** Go's own default. */
const PROXY = 'https://proxy.golang.org';
/** Of the paths in the archive, those that are programs. */
const IS_PROGRAM = /^(bin|pkg\/tool)\//;

/** The path of `go`; throws the reason where there is none. */
export async function goCommand(log: (line: string) => void): Promise<string> {
  const found = await findProgram('go');
  if (found !== undefined && (await isNewEnough(found))) return found;
  const archive = process.platform === 'linux' ? ARCHIVES[process.arch] : undefined;
  if (archive === undefined)
    throw new Error(`there is no Go 1.${MINOR} on the PATH, and it is fetched for Linux only`);
  const folder = await cached(`go-${VERSION}`, log, async (path) => {
    const zip = `${path}.zip`;
    try {
      await fetchFromProxy(archive, zip, log);
      await unpack(zip, `golang.org/toolchain@${archive.name}/`, path);
    } finally {
      await rm(zip, { force: true });
    }
  });
  return join(folder, 'bin/go');
}

async function isNewEnough(go: string): Promise<boolean> {
  const { out } = await endOf(go, ['version']).catch(() => ({ out: '' }));
  return Number(/ go1\.(\d+)/.exec(out)?.[1]) >= MINOR;
}

async function fetchFromProxy(
  archive: { readonly name: string; readonly bytes: number; readonly sha256: string },
  path: string,
  log: (line: string) => void,
): Promise<void> {
  const proxies = (process.env['GOPROXY'] || PROXY)
    .split(/[,|]/)
    .filter((one) => /^https?:/.test(one));
  const reasons: string[] = [];
  for (const proxy of proxies) {
    const url = new URL(
      `${proxy.trim().replace(/\/$/, '')}/golang.org/toolchain/@v/${archive.name}.zip`,
    );
    log(`fetching Go ${VERSION} from ${url.host} (${megabytes(archive.bytes)}, once) …`);
    const reason = await download(url.href, path, archive).catch(messageOf);
    if (reason === undefined) return;
    reasons.push(reason);
  }
  throw new Error(reasons.join('; ') || 'GOPROXY names no server');
}

async function unpack(zip: string, prefix: string, folder: string): Promise<void> {
  const archive = await openPromise(zip);
  for await (const entry of archive.eachEntry()) {
    // Go's proxy keeps go.mod files under this name.
    const name = entry.fileName.slice(prefix.length).replace(/(^|\/)_go\.mod$/, '$1go.mod');
    const file = join(folder, name);
    await mkdir(dirname(file), { recursive: true });
    const mode = IS_PROGRAM.test(name) ? 0o755 : 0o644;
    await pipeline(await archive.openReadStreamPromise(entry), createWriteStream(file, { mode }));
  }
}
