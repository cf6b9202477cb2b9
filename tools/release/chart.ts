/** Packages the chart of a release: its version, its image, and what Artifact Hub shows of it. */
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parse, parseDocument } from 'yaml';
import { goProgram } from '../go-program.ts';
import { packFolder, type Source } from './image.ts';
import { run } from '../program.ts';
import { entriesOf } from './version.ts';

/** The kinds that Artifact Hub knows. */
const KINDS = ['added', 'changed', 'deprecated', 'removed', 'fixed', 'security'];

export interface ChartOptions {
  /** The image's repository. */
  readonly repository: string;
  /** Of the image's index. */
  readonly digest: string;
  /** This version's part of the changelog. */
  readonly changes: string;
  /** SHA-256 of the public key, where the release is signed by key. */
  readonly fingerprint: string | undefined;
  readonly isPrerelease: boolean;
  readonly file: string;
  readonly log: (line: string) => void;
}

export async function packageChart(source: Source, options: ChartOptions): Promise<void> {
  const helm = await goProgram('helm', options.log);
  const work = await mkdtemp(join(tmpdir(), 'release-chart-'));
  try {
    const chart = join(work, 'partner-ingest');
    await cp(join(source.folder, 'charts/partner-ingest'), chart, { recursive: true });
    await edit(join(chart, 'Chart.yaml'), chartChanges(source, options));
    await edit(join(chart, 'values.yaml'), [[['image', 'repository'], options.repository]]);
    await run(helm, ['lint', '--quiet', chart, '--set', 'evaluation.enabled=true']);
    await run(helm, ['package', chart, '--destination', work]);
    // Helm dates each file with the moment; packed again, two packages of one commit are the same.
    const packed = join(work, 'packed');
    await mkdir(packed);
    await run('tar', ['-xf', join(work, `partner-ingest-${source.version}.tgz`), '-C', packed]);
    await packFolder(packed, options.file, source.committedAt, 'partner-ingest');
  } finally {
    await rm(work, { recursive: true });
  }
}

type Change = readonly [path: readonly string[], value: string];

function chartChanges({ version }: Source, options: ChartOptions): Change[] {
  const { repository, digest, changes, fingerprint, isPrerelease } = options;
  const image = { name: 'partner-ingest', image: `${repository}:${version}@${digest}` };
  const entries = entriesOf(changes).map(({ kind, description }) => ({
    kind: KINDS.includes(kind) ? kind : 'changed',
    description,
  }));
  const annotations: Record<string, string> = {
    prerelease: String(isPrerelease),
    images: JSON.stringify([image], null, 2),
    changes: JSON.stringify(entries, null, 2),
    ...(fingerprint === undefined ? {} : { signKey: JSON.stringify({ fingerprint }) }),
  };
  return [
    [['version'], version],
    [['appVersion'], version],
    ...Object.entries(annotations).map(
      ([name, value]) => [['annotations', `artifacthub.io/${name}`], value] as const,
    ),
  ];
}

/** Changes values in a YAML file and keeps its comments. */
async function edit(file: string, changes: readonly Change[]): Promise<void> {
  const document = parseDocument(await readFile(file, 'utf8'));
  for (const [path, value] of changes) document.setIn(path, value);
  await writeFile(file, document.toString({ lineWidth: 0 }));
}

/** The images that the chart's values name, with their tags. */
export async function imagesOfChart(source: Source, repository: string): Promise<string[]> {
  const text = await readFile(join(source.folder, 'charts/partner-ingest/values.yaml'), 'utf8');
  const { evaluation } = parse(text) as {
    evaluation: Record<string, { image?: string } | boolean>;
  };
  const servers = Object.values(evaluation).flatMap((server) =>
    typeof server === 'object' && typeof server.image === 'string' ? [server.image] : [],
  );
  return [`${repository}:${source.version}`, ...servers];
}
