/** Builds the images that are tested and brings them into the cluster. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT } from '../../tools/root.ts';
import { MAILDEV_VERSION } from '../../deploy/local/maildev.ts';
import { run } from '../../tools/program.ts';
import { baseCommit, git, sourceOf } from '../support/source-of.ts';
import type { ClusterTools } from './cluster.ts';

const BUILD_TIMEOUT_MS = 900_000;
const LOAD_TIMEOUT_MS = 300_000;
const QUICK_TIMEOUT_MS = 30_000;
const TAG_LENGTH = 12;
const ID_PREFIX = 'sha256:';
const REPOSITORY = 'partner-ingest';
const MAIL_REPOSITORY = 'partner-ingest-maildev';

export interface Images {
  readonly repository: string;
  /** Tag of the image of the working tree. */
  readonly current: string;
  readonly earlier: string;
  /** The name with its tag. */
  readonly mail: string;
}

export async function buildAndLoad(
  { loadImage }: ClusterTools,
  log: (line: string) => void,
): Promise<Images> {
  log('building the image of the working tree');
  const current = await build(ROOT, REPOSITORY, []);
  const commit = await earlierCommit(log);
  log(`building the image of ${commit}`);
  const earlier = await buildOf(commit);
  log('building an image of MailDev, because its own may not be had here');
  const version = ['--build-arg', `VERSION=${MAILDEV_VERSION}`];
  const mail = await build(join(ROOT, 'test/e2e/maildev'), MAIL_REPOSITORY, version);
  const names = [
    `${REPOSITORY}:${current}`,
    `${REPOSITORY}:${earlier}`,
    `${MAIL_REPOSITORY}:${mail}`,
  ];
  const [program = '', ...args] = loadImage;
  for (const name of names) {
    log(`${loadImage.join(' ')} ${name}`);
    await run(program, [...args, name], { timeoutMs: LOAD_TIMEOUT_MS, cwd: ROOT });
  }
  return { repository: REPOSITORY, current, earlier, mail: `${MAIL_REPOSITORY}:${mail}` };
}

/** Builds the image and tags it by its id, because a node keeps an image by its tag. */
async function build(folder: string, repository: string, more: readonly string[]): Promise<string> {
  // The base image depends on the machine, as in the Makefile.
  const base = process.env['BASE_IMAGE'];
  const baseImage = base === undefined || base === '' ? [] : ['--build-arg', `BASE_IMAGE=${base}`];
  const id = await docker(['build', '--quiet', ...baseImage, ...more, folder], BUILD_TIMEOUT_MS);
  const bare = (id.split('\n').at(-1) ?? '').replace(ID_PREFIX, '');
  const tag = `e2e-${bare.slice(0, TAG_LENGTH)}`;
  await docker(['tag', bare, `${repository}:${tag}`]);
  return tag;
}

/** A label makes it a different image even if the content is the same. */
async function buildOf(commit: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'e2e-earlier-'));
  try {
    await sourceOf(commit, folder);
    return await build(folder, REPOSITORY, ['--label', `e2e.earlier=${commit}`]);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** E2E_FROM, else the commit that `make test-upgrade` begins from, which a shallow clone lacks. */
async function earlierCommit(log: (line: string) => void): Promise<string> {
  const wanted = process.env['E2E_FROM'] ?? '';
  const commit = wanted === '' ? await baseCommit() : wanted;
  return git(['rev-parse', '--verify', `${commit}^{commit}`]).catch((cause: unknown) => {
    if (wanted !== '')
      throw new Error(`E2E_FROM=${wanted} is no commit of this repository`, { cause });
    log(`this repository has no commit ${commit}: the upgrade begins from today's version`);
    return git(['rev-parse', 'HEAD']);
  });
}

async function docker(args: readonly string[], timeoutMs = QUICK_TIMEOUT_MS): Promise<string> {
  return (await run('docker', args, { timeoutMs })).out.trim();
}
