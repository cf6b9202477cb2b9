/**
 * Makes the image of a commit without a container engine: an OCI layout in one tar file, for each
 * processor. Two builds of one commit on one machine have the same digest: files are sorted, owned
 * by root and dated by the commit.
 */
import { createHash } from 'node:crypto';
import { cp, mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ARCHITECTURES, pinnedNode, unpackDebian, unpackNode, type Architecture } from './base.ts';
import { imageConfig, type ImageConfig } from './dockerfile.ts';
import { run } from '../program.ts';

const MANIFEST = 'application/vnd.oci.image.manifest.v1+json';
const INDEX = 'application/vnd.oci.image.index.v1+json';
const CONFIG = 'application/vnd.oci.image.config.v1+json';
const LAYER = 'application/vnd.oci.image.layer.v1.tar+gzip';
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
/** What changes rarely is dated so, not by the commit: then releases share it. */
const NO_DATE = 0;

export interface Source {
  /** A copy of the commit's files. */
  readonly folder: string;
  readonly version: string;
  readonly commit: string;
  /** Seconds since 1970. */
  readonly committedAt: number;
}

interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

interface Layer extends Descriptor {
  readonly diffId: string;
  readonly madeBy: string;
}

export interface BuiltImage {
  /** Of the index of all processors: what a registry calls the image's digest. */
  readonly digest: string;
  readonly file: string;
}

/** Builds in `work`, which is new, and writes the layout to `file`. `name` is the repository's. */
export async function buildImage(
  source: Source,
  options: {
    readonly name: string;
    readonly file: string;
    readonly work: string;
    readonly log: (line: string) => void;
  },
): Promise<BuiltImage> {
  const { name, file, work, log } = options;
  const layout = join(work, 'layout');
  await mkdir(join(layout, 'blobs/sha256'), { recursive: true });
  const folder = (part: string): string => join(work, part);

  log('files of /app …');
  await filesOf('dependencies', source.folder, folder('dependencies'));
  await filesOf('program', source.folder, folder('program'));
  const dependencies = await layer(
    layout,
    folder('dependencies'),
    'files.sh dependencies',
    NO_DATE,
  );
  const program = await layer(layout, folder('program'), 'files.sh program', source.committedAt);

  const dockerfile = await readFile(join(source.folder, 'Dockerfile'), 'utf8');
  const config = imageConfig(dockerfile, { VERSION: source.version, REVISION: source.commit });
  const manifests = [];
  for (const architecture of ARCHITECTURES) {
    log(`base for ${architecture} …`);
    const [debian, node] = [folder(`debian-${architecture}`), folder(`node-${architecture}`)];
    await unpackDebian(architecture, debian, log);
    await unpackNode(architecture, node, log);
    const layers = [
      await layer(layout, debian, 'Debian packages', NO_DATE),
      await layer(layout, node, 'Node', NO_DATE),
      dependencies,
      program,
    ];
    const nodeVersion = (await pinnedNode(architecture)).version;
    manifests.push(
      await manifest(layout, architecture, layers, { ...config, nodeVersion }, source),
    );
  }
  const index = await blob(
    layout,
    INDEX,
    JSON.stringify({ schemaVersion: 2, mediaType: INDEX, manifests }),
  );
  const reference = `${name.includes('/') ? name : `docker.io/library/${name}`}:${source.version}`;
  const annotations = {
    'io.containerd.image.name': reference,
    'org.opencontainers.image.ref.name': source.version,
  };
  const top = { schemaVersion: 2, mediaType: INDEX, manifests: [{ ...index, annotations }] };
  await writeFile(join(layout, 'index.json'), JSON.stringify(top));
  await writeFile(join(layout, 'oci-layout'), JSON.stringify({ imageLayoutVersion: '1.0.0' }));
  await writeFile(
    join(layout, 'manifest.json'),
    JSON.stringify([await dockerManifest(layout, manifests[0], name, source)]),
  );
  await tar(layout, file, source.committedAt);
  return { digest: index.digest, file };
}

/** Unpacks an archive's image for the first processor into `root`, as an engine does. */
export async function unpackImage({ file }: BuiltImage, root: string): Promise<void> {
  const layout = await mkdtemp(join(tmpdir(), 'release-layout-'));
  try {
    await run('tar', ['-xf', file, '-C', layout]);
    const [image] = JSON.parse(await readFile(join(layout, 'manifest.json'), 'utf8')) as {
      Layers: string[];
    }[];
    await mkdir(root, { recursive: true });
    for (const one of image?.Layers ?? [])
      await run('tar', ['-xpzf', join(layout, one), '-C', root]);
  } finally {
    await rm(layout, { recursive: true });
  }
}

/** Runs the script that the Dockerfile runs, in a copy, because it installs packages there. */
export async function filesOf(
  what: 'dependencies' | 'program',
  source: string,
  out: string,
): Promise<void> {
  const copy = await mkdtemp(join(tmpdir(), 'release-'));
  try {
    await cp(source, copy, { recursive: true });
    await run(join(copy, 'deploy/image/files.sh'), [what, out], { cwd: copy });
  } finally {
    await rm(copy, { recursive: true });
  }
}

async function layer(layout: string, root: string, madeBy: string, date: number): Promise<Layer> {
  const file = `${root}.tar`;
  await tar(root, file, date);
  const diffId = sha256(await readFile(file));
  await run('gzip', ['--no-name', '--force', file]);
  const content = await readFile(`${file}.gz`);
  const digest = sha256(content);
  await rename(`${file}.gz`, join(layout, 'blobs/sha256', hexOf(digest)));
  return { mediaType: LAYER, digest, size: content.length, diffId, madeBy };
}

/**
 * Packs what is in `folder`, or one name in it, so that the same files always make the same
 * archive.
 */
async function tar(folder: string, file: string, date: number, what = '.'): Promise<void> {
  const same = [
    '--sort=name',
    '--format=gnu',
    '--owner=0',
    '--group=0',
    '--numeric-owner',
    `--mtime=@${date}`,
  ];
  await run('tar', [...same, '-cf', file, '-C', folder, what], {
    env: { ...process.env, LC_ALL: 'C' },
  });
}

/** The same, compressed. */
export async function packFolder(
  folder: string,
  file: string,
  date: number,
  what: string,
): Promise<void> {
  await tar(folder, `${file}.unfinished`, date, what);
  await run('gzip', ['--no-name', '--suffix=.gz', `${file}.unfinished`]);
  await rename(`${file}.unfinished.gz`, file);
}

async function manifest(
  layout: string,
  architecture: Architecture,
  layers: readonly Layer[],
  { nodeVersion, ...config }: ImageConfig & { readonly nodeVersion: string },
  { committedAt }: Source,
): Promise<Descriptor & { readonly platform: object }> {
  const created = new Date(committedAt * 1_000).toISOString();
  const platform = {
    os: 'linux',
    architecture,
    ...(architecture === 'arm64' ? { variant: 'v8' } : {}),
  };
  const image = {
    created,
    ...platform,
    config: { ...config, Env: [`PATH=${PATH}`, `NODE_VERSION=${nodeVersion}`, ...config.Env] },
    rootfs: { type: 'layers', diff_ids: layers.map(({ diffId }) => diffId) },
    history: layers.map(({ madeBy }) => ({ created, created_by: madeBy })),
  };
  const described = {
    schemaVersion: 2,
    mediaType: MANIFEST,
    config: await blob(layout, CONFIG, JSON.stringify(image)),
    layers: layers.map(({ mediaType, digest, size }) => ({ mediaType, digest, size })),
  };
  return { ...(await blob(layout, MANIFEST, JSON.stringify(described))), platform };
}

/**
 * For `docker load` of an engine that knows no OCI layout: it takes the first processor's image.
 */
async function dockerManifest(
  layout: string,
  first: Descriptor | undefined,
  name: string,
  { version }: Source,
): Promise<object> {
  const path = (digest: string): string => `blobs/sha256/${hexOf(digest)}`;
  const text = await readFile(join(layout, path(first?.digest ?? '')), 'utf8');
  const { config, layers } = JSON.parse(text) as { config: Descriptor; layers: Descriptor[] };
  return {
    Config: path(config.digest),
    RepoTags: [`${name}:${version}`],
    Layers: layers.map(({ digest }) => path(digest)),
  };
}

async function blob(layout: string, mediaType: string, text: string): Promise<Descriptor> {
  const digest = sha256(text);
  await writeFile(join(layout, 'blobs/sha256', hexOf(digest)), text);
  return { mediaType, digest, size: Buffer.byteLength(text) };
}

export function sha256(content: string | Buffer): string {
  return `sha256:${createHash('sha256').update(content).digest('hex')}`;
}

function hexOf(digest: string): string {
  return digest.slice('sha256:'.length);
}
