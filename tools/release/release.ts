/**
 * `make release VERSION=0.1.0`: checks that this commit may be released, writes the changelog's
 * heading, makes and signs the files of the release, and verifies them as a user would. It
 * publishes nothing.
 */
import { chmod, cp, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs, styleText } from 'node:util';
import { ROOT } from '../root.ts';
import { table } from '../../internal/platform/terminal.ts';
import { messageOf } from '../../deploy/local/stores/wait.ts';
import { goProgram } from '../go-program.ts';
import { imagesOfChart, packageChart } from './chart.ts';
import { chartSbom, imageSbom, provenance, type Subject } from './documents.ts';
import { buildImage, sha256, unpackImage, type BuiltImage, type Source } from './image.ts';
import { checkTests, copyOfCommit, git, isClean } from './repository.ts';
import { run } from '../program.ts';
import {
  chooseSigner,
  signFile,
  signStatement,
  verify,
  verifyCommands,
  writePublicKey,
  type Signing,
} from './sign.ts';
import { parseVersion, sectionOf, withHeading, type Version } from './version.ts';

const CHANGELOG = 'CHANGELOG.md';
const RELEASES = '.run/release';
/** Where nothing else is said of the project's address: the one in Chart.yaml. */
const DEFAULT_SOURCE = 'https://git.example.com/partner-ingest';
const BYTES_PER_MB = 1_000_000;

interface Options {
  readonly key: string;
  readonly repository: string;
  readonly mayBeUntested: boolean;
}

interface Outcome {
  readonly version: string;
  readonly commit: string;
  readonly folder: string;
  readonly image: string;
  readonly signedBy: string;
  readonly tests: string;
  readonly files: readonly {
    readonly name: string;
    readonly bytes: number;
    readonly sha256: string;
  }[];
}

async function release(
  version: Version,
  options: Options,
  log: (line: string) => void,
): Promise<Outcome> {
  // Modes of files must not depend on the person's settings.
  process.umask(0o022);
  if (!(await isClean())) throw new Error('the working tree has changes: commit them first');
  await checkFiles(version);
  const tests = await checkTests(version, options.mayBeUntested, log);
  const changes = await writeHeading(version, log);
  const cosign = await goProgram('cosign', log);

  const trialFolder = join(ROOT, RELEASES, 'trial-key');
  const folder = join(ROOT, RELEASES, version.text);
  await mkdir(trialFolder, { recursive: true });
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const signer = await chooseSigner(options.key, trialFolder, cosign);
  const signing: Signing = { signer, folder, cosign };
  const fingerprint = await writePublicKey(signing);

  const work = await mkdtemp(join(tmpdir(), 'release-'));
  try {
    const source = await sourceOf(version, join(work, 'source'));
    const making: Making = { folder, work, changes, fingerprint, version, options, log };
    const { image, files } = await makeTwice(source, making);
    await runImage(image, log);
    log('signing …');
    const { builder, source: address } = maker();
    const made = {
      subjects: files,
      builder,
      source: address,
      repository: options.repository,
      tests,
    };
    await signStatement(
      signing,
      'provenance',
      await provenance(source, { ...made, finishedAt: new Date() }),
    );
    const signed = await signSums(signing, files, changes);
    log('verifying as docs/verify.md says …');
    await verify(signing);
    await seeRefused(signing, files[0]?.name ?? '', work);
    const trial =
      signer.kind === 'key' && signer.isTrial ? ', made for this trial: nobody can trust it' : '';
    return {
      version: version.text,
      commit: source.commit,
      folder: `${RELEASES}/${version.text}`,
      image: image.digest,
      signedBy: signer.kind === 'key' ? `key ${fingerprint ?? ''}${trial}` : signer.identity,
      tests,
      files: await Promise.all(
        signed.map(async ({ name, digest }) => ({
          name,
          bytes: (await stat(join(folder, name))).size,
          sha256: digest.replace('sha256:', ''),
        })),
      ),
    };
  } finally {
    await rm(work, { recursive: true });
  }
}

/** Makes all files, once more elsewhere, and rejects where one differs. */
async function makeTwice(
  source: Source,
  making: Making,
): Promise<{ image: BuiltImage; files: Subject[] }> {
  const { folder, work, log } = making;
  const image = await makeAll(source, making);
  log('making all once more …');
  const again = join(work, 'again');
  await mkdir(again);
  await makeAll(source, { ...making, folder: again, work: join(work, 'second'), log: () => {} });
  const files = await digests(folder, namesOf(source));
  const others = await digests(again, namesOf(source));
  const differ = files
    .filter(({ digest }, index) => digest !== others[index]?.digest)
    .map(({ name }) => name);
  if (differ.length > 0) throw new Error(`two builds of one commit differ: ${differ.join(', ')}`);
  return { image, files };
}

/** Signs the list of checksums, and gives what it lists, and itself. */
async function signSums(
  signing: Signing,
  files: readonly Subject[],
  changes: string,
): Promise<Subject[]> {
  const { folder } = signing;
  await writeFile(join(folder, 'CHANGES.md'), `${changes}\n`);
  const listed = [...files, ...(await digests(folder, ['CHANGES.md']))];
  const lines = listed.map(({ name, digest }) => `${digest.replace('sha256:', '')}  ${name}\n`);
  await writeFile(join(folder, 'SHA256SUMS'), lines.join(''));
  await signFile(signing, 'SHA256SUMS');
  return [...listed, ...(await digests(folder, ['SHA256SUMS']))];
}

/** The version in the files is that of the release, without the candidate's number. */
async function checkFiles({ core }: Version): Promise<void> {
  const { version } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as {
    version: string;
  };
  const chart = await readFile(join(ROOT, 'charts/partner-ingest/Chart.yaml'), 'utf8');
  const inChart = [...chart.matchAll(/^(?:version|appVersion): (\S+)$/gm)].map(([, text]) => text);
  if ([version, ...inChart].some((one) => one !== core)) {
    throw new Error(
      `package.json (${version}) and Chart.yaml (${inChart.join(', ')}) must say ${core}`,
    );
  }
}

/** Commits the heading where it is missing, and gives what stands under it. */
async function writeHeading(version: Version, log: (line: string) => void): Promise<string> {
  const file = join(ROOT, CHANGELOG);
  const before = await readFile(file, 'utf8');
  const result = withHeading(
    before,
    version,
    new Date().toISOString().slice(0, 'yyyy-mm-dd'.length),
  );
  if (result.kind === 'no changes')
    throw new Error(`${CHANGELOG} has no section "Unreleased" at its top`);
  if (result.kind === 'written') {
    await writeFile(file, result.text);
    await git(['commit', '--quiet', '--message', `Release ${version.text}`, '--', CHANGELOG]);
    log(`committed the heading of ${version.text}`);
  }
  return sectionOf(result.kind === 'written' ? result.text : before, version.text) ?? '';
}

async function sourceOf({ text }: Version, folder: string): Promise<Source> {
  const { commit, committedAt } = await copyOfCommit(folder);
  const file = join(folder, 'package.json');
  const manifest = JSON.parse(await readFile(file, 'utf8')) as object;
  await writeFile(file, `${JSON.stringify({ ...manifest, version: text }, null, 2)}\n`);
  return { folder, version: text, commit, committedAt };
}

interface Making {
  readonly folder: string;
  readonly work: string;
  readonly changes: string;
  readonly fingerprint: string | undefined;
  readonly version: Version;
  readonly options: Options;
  readonly log: (line: string) => void;
}

const namesOf = ({ version }: Source): string[] =>
  ['image.tar', 'image.cdx.json', 'chart.cdx.json']
    .map((name) => `partner-ingest-${version}.${name}`)
    .concat(`partner-ingest-${version}.tgz`);

/** All files that are the same at each build of the commit. */
async function makeAll(source: Source, making: Making): Promise<BuiltImage> {
  const { folder, changes, fingerprint, version, options, log } = making;
  const { repository } = options;
  const work = join(making.work, 'image');
  await mkdir(work, { recursive: true });
  const file = (name: string): string => join(folder, `partner-ingest-${source.version}.${name}`);
  const image = await buildImage(source, { name: repository, file: file('image.tar'), work, log });
  await writeFile(file('image.cdx.json'), json(await imageSbom(source, image.digest)));
  log('chart …');
  const { isPrerelease } = version;
  const { digest } = image;
  await packageChart(source, {
    repository,
    digest,
    changes,
    fingerprint,
    isPrerelease,
    file: file('tgz'),
    log,
  });
  const chart = sha256(await readFile(file('tgz')));
  await writeFile(
    file('chart.cdx.json'),
    json(chartSbom(source, await imagesOfChart(source, repository), chart)),
  );
  return image;
}

/**
 * Where this machine can: the image's own files answer `partner-ingest help` as the image's user,
 * and see nothing else.
 */
async function runImage(image: BuiltImage, log: (line: string) => void): Promise<void> {
  if (process.platform !== 'linux' || process.arch !== 'x64' || process.getuid?.() !== 0) {
    return log('not run here: that needs root on Linux and amd64');
  }
  const folder = await mkdtemp(join(tmpdir(), 'release-run-'));
  try {
    // The image's user must get to it.
    await chmod(folder, 0o755);
    const root = join(folder, 'root');
    await unpackImage(image, root);
    const { out: said } = await run(
      'chroot',
      ['--userspec=10001:10001', root, '/usr/local/bin/partner-ingest', 'help'],
      {
        env: { PATH: '/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' },
      },
    );
    if (!said.includes('partner-ingest')) throw new Error(`the image's command said: ${said}`);
    log('the image for amd64 answers `partner-ingest help`');
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** A verification that cannot fail would say nothing: one changed byte must be refused. */
async function seeRefused(signing: Signing, name: string, work: string): Promise<void> {
  const folder = join(work, 'changed');
  await cp(signing.folder, folder, { recursive: true });
  const content = await readFile(join(folder, name));
  const middle = Math.floor(content.length / 2);
  content[middle] = (content[middle] ?? 0) ^ 1;
  await writeFile(join(folder, name), content);
  const refused = await verify({ ...signing, folder }).then(
    () => false,
    () => true,
  );
  if (!refused) throw new Error(`${name} with one byte changed still verifies`);
}

async function digests(folder: string, names: readonly string[]): Promise<Subject[]> {
  return await Promise.all(
    names.map(async (name) => ({ name, digest: sha256(await readFile(join(folder, name))) })),
  );
}

function maker(): { builder: string; source: string } {
  const {
    GITHUB_SERVER_URL: server,
    GITHUB_REPOSITORY: repository,
    GITHUB_WORKFLOW_REF: workflow,
  } = process.env;
  if (server === undefined || repository === undefined || workflow === undefined) {
    return { builder: `${DEFAULT_SOURCE}/tree/main/tools/release`, source: DEFAULT_SOURCE };
  }
  return { builder: `${server}/${workflow}`, source: `${server}/${repository}` };
}

const json = (value: object): string => `${JSON.stringify(value, null, 2)}\n`;

async function report({ files, ...outcome }: Outcome): Promise<string> {
  return [
    table(
      files.map(({ name, bytes, sha256: sum }) => [
        name,
        `${(bytes / BYTES_PER_MB).toFixed(2).padStart(7)} MB`,
        sum,
      ]),
    ),
    '',
    table(Object.entries(outcome)),
    '',
    'Two builds are the same. Verified, and refused with one byte changed. A user does (docs/verify.md):',
    ...(await verifyCommands()).map((line) => `  ${line}`),
    '',
    `Next: git tag v${outcome.version} && git push origin HEAD v${outcome.version}`,
  ].join('\n');
}

const { values } = parseArgs({
  options: {
    version: { type: 'string', default: '' },
    key: { type: 'string', default: '' },
    repository: { type: 'string', default: '' },
    untested: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  },
});
const begin = performance.now();
const log = (line: string): void =>
  console.error(
    styleText('dim', `${((performance.now() - begin) / 1_000).toFixed(0).padStart(4)} s  ${line}`),
  );
const parsed = parseVersion(values.version);
if (parsed.kind === 'wrong') {
  console.error('VERSION must be such as 0.1.0 or 0.1.0-rc.1');
  process.exitCode = 2;
} else {
  const repository = values.repository === '' ? 'partner-ingest' : values.repository;
  const options = { key: values.key, repository, mayBeUntested: values.untested };
  try {
    const outcome = await release(parsed.version, options, log);
    console.log(values.json ? JSON.stringify(outcome) : await report(outcome));
  } catch (error) {
    console.error(styleText('red', `not released: ${messageOf(error)}`));
    process.exitCode = 1;
  }
}
