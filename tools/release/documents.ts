/**
 * The documents that go with a release: what is in it (CycloneDX) and how it was made (SLSA
 * provenance in in-toto).
 */
import { createHash } from 'node:crypto';
import { ARCHITECTURES, pinnedNode, pinnedPackages } from './base.ts';
import type { Source } from './image.ts';
import { run } from '../program.ts';

export interface Component {
  readonly type: 'library' | 'application' | 'container';
  readonly name: string;
  readonly version: string;
  readonly purl: string;
  readonly 'bom-ref': string;
  readonly hashes?: readonly { readonly alg: string; readonly content: string }[];
}

export interface Sbom {
  readonly bomFormat: 'CycloneDX';
  readonly serialNumber: string;
  readonly metadata: { readonly timestamp: string; readonly component: object };
  readonly components: readonly Component[];
}

/** npm's own list of the packages in /app, and beside them Node and Debian's packages. */
export async function imageSbom(source: Source, digest: string): Promise<Sbom> {
  const flags = [
    '--sbom-format',
    'cyclonedx',
    '--package-lock-only',
    '--omit=dev',
    '--omit=optional',
  ];
  const { out } = await run('npm', ['sbom', ...flags], { cwd: source.folder });
  const npm = JSON.parse(out) as Sbom;
  const below: Component[] = [];
  const packages = await pinnedPackages();
  for (const architecture of ARCHITECTURES) {
    const { name, version, integrity } = await pinnedNode(architecture);
    const sha512 = Buffer.from(integrity.replace('sha512-', ''), 'base64').toString('hex');
    below.push(
      component(name, version, `pkg:npm/${name}@${version}`, { alg: 'SHA-512', content: sha512 }),
    );
    for (const { name: debian, version: of, sha256 } of packages[architecture]) {
      const purl = `pkg:deb/debian/${debian}@${encodeURIComponent(of)}?arch=${architecture}&distro=debian-12`;
      below.push(component(debian, of, purl, { alg: 'SHA-256', content: sha256 }));
    }
  }
  const about = {
    ...npm.metadata.component,
    type: 'container',
    name: 'partner-ingest',
    version: source.version,
    purl: `pkg:oci/partner-ingest@${encodeURIComponent(digest)}`,
  };
  return sbom(source, 'image', { ...npm, components: [...npm.components, ...below] }, about);
}

/** The images that the chart starts. */
export function chartSbom(source: Source, images: readonly string[], digest: string): Sbom {
  const components = images.map((image): Component => {
    const [, name = '', version = ''] = /^(.*):([^:/]+)$/.exec(image) ?? [];
    const purl = `pkg:docker/${name}@${version}`;
    return { type: 'container', name, version, purl, 'bom-ref': purl };
  });
  const about = {
    type: 'application',
    name: 'partner-ingest',
    version: source.version,
    'bom-ref': `pkg:helm/partner-ingest@${source.version}`,
    purl: `pkg:helm/partner-ingest@${source.version}`,
    hashes: [{ alg: 'SHA-256', content: digest.replace('sha256:', '') }],
  };
  const empty = {
    bomFormat: 'CycloneDX',
    specVersion: '1.5',
    version: 1,
    metadata: {},
    components,
  };
  return sbom(source, 'chart', empty as unknown as Sbom, about);
}

/** Dated and numbered by the commit, so that two builds give the same. */
function sbom(source: Source, of: string, document: Sbom, about: object): Sbom {
  const hex = createHash('sha256').update(`${of} ${source.version} ${source.commit}`).digest('hex');
  // The form of a UUID of version 8, whose bits are the maker's own.
  const uuid = hex.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*$/, '$1-$2-8$3-8$4-$5');
  const metadata = { ...document.metadata, timestamp: dateOf(source), component: about };
  return { ...document, serialNumber: `urn:uuid:${uuid}`, metadata };
}

function component(
  name: string,
  version: string,
  purl: string,
  hash: { readonly alg: string; readonly content: string },
): Component {
  return { type: 'library', name, version, purl, 'bom-ref': purl, hashes: [hash] };
}

export interface Subject {
  readonly name: string;
  /** With `sha256:` before it. */
  readonly digest: string;
}

export interface Made {
  readonly subjects: readonly Subject[];
  /** Who made it: the workflow's address, or this machine's word. */
  readonly builder: string;
  readonly repository: string;
  readonly source: string;
  /** What is known of the tests of this commit. */
  readonly tests: string;
  readonly finishedAt: Date;
}

/** An in-toto statement: from which commit and which packages each file was made, by whom. */
export async function provenance(source: Source, made: Made): Promise<object> {
  const packages = await pinnedPackages();
  const dependencies = [];
  for (const architecture of ARCHITECTURES) {
    const { name, version, integrity } = await pinnedNode(architecture);
    const sha512 = Buffer.from(integrity.replace('sha512-', ''), 'base64').toString('hex');
    dependencies.push({ uri: `pkg:npm/${name}@${version}`, digest: { sha512 } });
    for (const { name: debian, version: of, sha256 } of packages[architecture]) {
      const uri = `pkg:deb/debian/${debian}@${encodeURIComponent(of)}?arch=${architecture}`;
      dependencies.push({ uri, digest: { sha256 } });
    }
  }
  return {
    _type: 'https://in-toto.io/Statement/v1',
    subject: made.subjects.map(({ name, digest }) => ({
      name,
      digest: { sha256: digest.replace('sha256:', '') },
    })),
    predicateType: 'https://slsa.dev/provenance/v1',
    predicate: {
      buildDefinition: {
        buildType: `${made.source}/blob/${source.commit}/tools/release/release.ts`,
        externalParameters: { version: source.version, repository: made.repository },
        internalParameters: { tests: made.tests, sourceDateEpoch: source.committedAt },
        resolvedDependencies: [
          { uri: `git+${made.source}@${source.commit}`, digest: { gitCommit: source.commit } },
          ...dependencies,
        ],
      },
      runDetails: {
        builder: { id: made.builder },
        metadata: { finishedOn: made.finishedAt.toISOString() },
      },
    },
  };
}

function dateOf({ committedAt }: Source): string {
  return new Date(committedAt * 1_000).toISOString();
}
