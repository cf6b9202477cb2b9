/**
 * The image that Docker builds and the one that `make release` makes without it: the same files,
 * and both answer.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { cp, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../deploy/local/stores/wait.ts';
import { buildImage, unpackImage, type BuiltImage } from '../../tools/release/image.ts';
import { run } from '../../tools/release/shell.ts';
import { baseImageArguments, docker } from '../support/docker.ts';
import { send } from '../support/http.ts';
import { bodies, expectAnswer } from '../support/ingest.ts';
import { newApplication, openWorld, type World } from '../support/world.ts';
import { ROOT } from '../support/needs.ts';
import { treeOf } from '../support/tree.ts';
import { eventually, HEAL_HANG_MS } from '../support/wait.ts';

const DOCKERS = 'partner-ingest:by-docker';
const OURS = 'partner-ingest-test:0.0.0';
/** What `files.sh` makes. */
const FILES = ['app', 'usr/local/bin/partner-ingest'];
const BUILD_TIMEOUT_MS = 900_000;

let folder: string;
let world: World;
let ours: BuiltImage;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'image-'));
  world = await openWorld();
  const source = join(folder, 'source');
  await mkdir(source);
  const list = await run('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: ROOT,
  });
  const paths = list.split('\0').filter((path) => path !== '');
  await Promise.all(paths.map((path) => cp(join(ROOT, path), join(source, path))));
  ours = await buildImage(
    { folder: source, version: '0.0.0', commit: 'none', committedAt: 0 },
    {
      name: 'partner-ingest-test',
      file: join(folder, 'image.tar'),
      work: join(folder, 'work'),
      log: () => {},
    },
  );
  await docker('build', '--quiet', '--tag', DOCKERS, ...baseImageArguments(), source);
  await docker('load', '--input', ours.file);
}, BUILD_TIMEOUT_MS);
afterAll(async () => {
  await world.close();
  await docker('rmi', '--force', DOCKERS, OURS);
  await rm(folder, { recursive: true });
});

test('both have the same files', async () => {
  const [byDocker, byUs] = [join(folder, 'by-docker'), join(folder, 'by-us')];
  const container = await docker('create', DOCKERS);
  await docker('export', '--output', `${byDocker}.tar`, container);
  await docker('rm', container);
  await mkdir(byDocker);
  await run('tar', ['-xf', `${byDocker}.tar`, '-C', byDocker, ...FILES]);
  await unpackImage(ours, byUs);
  const [one, other] = await Promise.all([treeOf(byDocker), treeOf(byUs)]);
  const made = Object.fromEntries(
    Object.entries(other).filter(([path]) =>
      FILES.some((file) => path === file || path.startsWith(`${file}/`)),
    ),
  );
  expect(Object.keys(one).length).toBeGreaterThan(1_000);
  expect(made).toEqual(one);
});

test.each([DOCKERS, OURS])(
  '%s answers partners, and its command answers operators',
  async (image) => {
    const [http, admin] = [await freePort(), await freePort()];
    const settings = { ...world.environment, HTTP_PORT: String(http), ADMIN_PORT: String(admin) };
    const given = Object.entries(settings).flatMap(([name, value]) => [
      '--env',
      `${name}=${value}`,
    ]);
    const safe = ['--read-only', '--cap-drop', 'ALL', '--network', 'host'];
    const container = await docker('run', '--detach', ...safe, ...given, image);
    try {
      const isReady = async (): Promise<boolean> =>
        (await fetch(`http://127.0.0.1:${admin}/readyz`)).ok;
      await eventually(`${image} to be ready`, isReady, HEAL_HANG_MS);
      const body = JSON.stringify(newApplication());
      const answer = await send(`http://127.0.0.1:${http}`, { key: world.key, body });
      const id = expectAnswer(answer, 202, bodies.accepted);
      expect((await world.record(id))?.state).toBe('recorded');
      expect(await docker('exec', container, 'partner-ingest', 'help')).toContain('partner-ingest');
    } finally {
      await docker('rm', '--force', container);
    }
  },
);
