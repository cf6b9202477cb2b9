// Makes the parts of the "debian" way, once: a root file system with the servers, FerretDB, and an
// initialised database.

import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import process from 'node:process';
import { buildGoProgram } from '../../../tools/go-program.ts';
import { endOf } from '../../../tools/program.ts';
import { cached, installLog, isCached } from './cache.ts';
import { findProgram, run, succeeds } from './process.ts';
import { DATA_IN_ROOT, inRoot, makeDataDir } from './root.ts';

export const FERRETDB_VERSION = '2.7.0';
export const POSTGRESQL_VERSION = '18';
// The number is raised when the recipe changes, so that nobody keeps the old part.
const ROOT_PART = 'root-1';
const DISK_PART = 'root-disk-1';
const FERRETDB_PART = `ferretdb-${FERRETDB_VERSION}`;
const TEMPLATE_PART = 'postgresql-template-2';
const SUITE = 'sid';
const PACKAGES = [`postgresql-${POSTGRESQL_VERSION}-documentdb`, 'redis-server'];
/** What makes a disk that can lose its power: see test/faults/power-disk.ts. */
const DISK_PACKAGES = ['nbdkit', 'nbdfuse', 'fuse3', 'e2fsprogs', 'mount'];
const FERRETDB_SOURCE = `github.com/FerretDB/FerretDB/v2/cmd/ferretdb@v${FERRETDB_VERSION}`;
// Own mounts and process numbers: nothing of a killed installation stays mounted or goes on
// working.
const PRIVATE = 'unshare --mount --mount-proc --pid --fork --kill-child=SIGKILL --'.split(' ');
const INSTALL_TIMEOUT_MS = 20 * 60_000;
const TEMPLATE_TIMEOUT_MS = 5 * 60_000;
const APT_LOCK_TIMEOUT_S = 300;

export const POSTGRESQL_BIN = `/usr/lib/postgresql/${POSTGRESQL_VERSION}/bin`;

// Durability stays as PostgreSQL ships it (fsync and synchronous_commit on); these are about size
// and about DocumentDB.
const POSTGRESQL_SETTINGS = `
shared_preload_libraries = 'pg_cron,pg_documentdb_core,pg_documentdb'
cron.database_name = 'postgres'
# Otherwise pg_cron remembers the port of the moment the extension was created, and index builds and TTL fail silently.
cron.use_background_workers = on
cron.log_run = off
listen_addresses = '127.0.0.1'
unix_socket_directories = '/tmp'
# It has nothing to do while pg_cron builds the indexes, and costs as much as an idle server else does.
documentdb.enableBackgroundWorker = off
# FerretDB keeps a pool of connections.
max_connections = 200
max_worker_processes = 16
shared_buffers = 128MB
huge_pages = off
`;

/**
 * Each of DocumentDB's two builders of indexes starts a process every 2 s, which is most of what an
 * idle server costs.
 */
const ONE_INDEX_BUILDER =
  "select cron.unschedule(jobid) from cron.job where command like '%build_index_concurrently(2)%'";

const TEMPLATE_SCRIPT = `set -e
bin=${POSTGRESQL_BIN}
$bin/initdb -D ${DATA_IN_ROOT} -A trust -U postgres --encoding=UTF8 --locale=C.UTF-8 --no-instructions
printf '%s' "$1" >>${DATA_IN_ROOT}/postgresql.conf
$bin/pg_ctl -D ${DATA_IN_ROOT} -w -o "-c listen_addresses=''" start
$bin/psql -q -h /tmp -U postgres -v ON_ERROR_STOP=1 -c 'create extension documentdb cascade' -c "$2" postgres
$bin/pg_ctl -D ${DATA_IN_ROOT} -w -m fast stop`;

/**
 * Says in a sentence why the "debian" way cannot work on this machine, or gives undefined when it
 * may.
 */
export async function debianObstacle(): Promise<string | undefined> {
  if (process.platform !== 'linux') return 'a Debian root file system needs Linux';
  if (process.getuid?.() !== 0)
    return 'a Debian root file system needs root (run as root, or with sudo)';
  if (!(await isCached(ROOT_PART)) && (await machineMirror()) === undefined)
    return 'a Debian root file system needs a Debian machine, for its apt sources';
  if (!(await succeeds([...PRIVATE, 'true'])))
    return 'a Debian root file system needs the right to mount (CAP_SYS_ADMIN), and unshare of util-linux';
  return undefined;
}

/**
 * The root file system with PostgreSQL, DocumentDB and Redis; made by mmdebstrap when it is not
 * there.
 */
export async function installRoot(log: (line: string) => void): Promise<string> {
  return await rootOf(ROOT_PART, PACKAGES, log, async (path) => {
    // PostgreSQL's jobs connect to "localhost".
    await writeFile(join(path, 'etc/hosts'), '127.0.0.1 localhost\n');
    await rm(join(path, 'var/lib/postgresql', POSTGRESQL_VERSION), {
      recursive: true,
      force: true,
    });
  });
}

/** The root file system with the programs of a disk that can lose its power. */
export async function installDiskRoot(log: (line: string) => void): Promise<string> {
  return await rootOf(DISK_PART, DISK_PACKAGES, log);
}

// What apt itself knows of this machine, so that no mirror's name stands in the project.

/** The lines that an apt program prints; none where there is no apt. */
async function linesOf(program: string, ...args: readonly string[]): Promise<string[]> {
  const { out } = await endOf(program, args).catch(() => ({ out: '' }));
  return out.split('\n').filter((line) => line !== '');
}

/** The mirror from which this machine gets its Debian; undefined on another system. */
async function machineMirror(): Promise<string | undefined> {
  const release = await readFile('/etc/os-release', 'utf8').catch(() => '');
  if (!/^ID=["']?debian["']?$/m.test(release)) return undefined;
  const format = ['--format', '$(REPO_URI) $(RELEASE)', 'Created-By: Packages'];
  const sources = await linesOf('apt-get', 'indextargets', ...format);
  // Third parties use the names of releases too, but only Debian has `-updates`, or is called so.
  const own =
    sources.find((source) => source.endsWith('-updates')) ??
    sources.find((source) => /\/debian\/? /.test(source));
  return (own ?? sources[0])?.split(' ')[0];
}

/** The machine's settings about expired indexes: a frozen mirror is taken only when told so. */
async function validityOptions(): Promise<string[]> {
  return (await linesOf('apt-config', 'dump')).filter((line) => line.includes('Check-Valid-Until'));
}

/** One for all roots: two calls of apt-get at once hinder each other. */
let mmdebstrap: Promise<void> | undefined;

async function rootOf(
  part: string,
  packages: readonly string[],
  log: (line: string) => void,
  complete: (path: string) => Promise<void> = () => Promise.resolve(),
): Promise<string> {
  return await cached(part, log, async (path) => {
    const logFile = installLog(part);
    const mirror = await machineMirror();
    if (mirror === undefined)
      throw new Error('no Debian mirror in the apt sources of this machine');
    mmdebstrap ??= installPackage('mmdebstrap', log);
    await mmdebstrap;
    log(
      `making a root file system with ${packages.join(', ')} (600 MB unpacked, about 1 min, once) …`,
    );
    const aptOptions = (await validityOptions()).map((option) => `--aptopt=${option}`);
    const begin = performance.now();
    await run({
      command: [
        ...PRIVATE,
        'mmdebstrap',
        '--mode=root',
        '--variant=essential',
        ...aptOptions,
        `--include=${packages.join(',')}`,
        SUITE,
        path,
        mirror,
      ],
      logFile,
      timeoutMs: INSTALL_TIMEOUT_MS,
    });
    await mkdir(join(path, DATA_IN_ROOT));
    await complete(path);
    log(`root file system made in ${seconds(begin)} s`);
  });
}

/** Installs a package of Debian with its program of the same name, where there is none. */
export async function installPackage(name: string, log: (line: string) => void): Promise<void> {
  if ((await findProgram(name)) !== undefined) return;
  log(`installing ${name} with apt-get …`);
  const apt = ['apt-get', '-q', '-o', `DPkg::Lock::Timeout=${APT_LOCK_TIMEOUT_S}`];
  const settings = {
    logFile: installLog(name),
    // oxlint-disable-next-line node/no-process-env -- apt needs the environment as it is, and must not ask
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    timeoutMs: INSTALL_TIMEOUT_MS,
    // To kill apt in the middle of its work would leave the machine's packages in disorder.
    untied: true,
  };
  // A third party's source that cannot be read is no reason to stop: the installation says whether
  // the package was found.
  await run({ ...settings, command: [...apt, 'update'] }).catch(() => undefined);
  await run({ ...settings, command: [...apt, 'install', '-y', '--no-install-recommends', name] });
}

/** Says whether FerretDB was built. */
export function hasFerretDb(): Promise<boolean> {
  return isCached(FERRETDB_PART);
}

/** FerretDB's program, built by Go when it is not there. */
export async function installFerretDb(log: (line: string) => void): Promise<string> {
  return await cached(FERRETDB_PART, log, async (path) => {
    const directory = `${path}.d`;
    await rm(directory, { recursive: true, force: true });
    await buildGoProgram(FERRETDB_SOURCE, directory, FERRETDB_PART, log);
    await rename(join(directory, 'ferretdb'), path);
    await rm(directory, { recursive: true, force: true });
  });
}

/**
 * An initialised data directory of PostgreSQL with DocumentDB in it, to be copied for each server.
 */
export async function installTemplate(root: string, log: (line: string) => void): Promise<string> {
  return await cached(TEMPLATE_PART, log, async (path) => {
    log('initialising PostgreSQL with DocumentDB (about 5 s, once) …');
    await makeDataDir(path, root, 'postgres');
    const command = inRoot(root, path, 'postgres', [
      'sh',
      '-c',
      TEMPLATE_SCRIPT,
      'sh',
      POSTGRESQL_SETTINGS,
      ONE_INDEX_BUILDER,
    ]);
    await run({ command, logFile: installLog('template'), timeoutMs: TEMPLATE_TIMEOUT_MS });
    await rm(`${path}.lock`, { force: true });
  });
}

function seconds(begin: number): string {
  const MS_PER_SECOND = 1_000;
  return ((performance.now() - begin) / MS_PER_SECOND).toFixed(0);
}
