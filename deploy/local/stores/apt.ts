// Reads this machine's own apt sources, so that no mirror's name stands in the project.

import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

const APT = '/etc/apt';

export interface AptSource {
  uri: string;
  suites: string[];
}

/** Reads the classic one-line form: `deb [options] URL SUITE COMPONENT...`. */
function parseListFile(text: string): AptSource[] {
  return text.split('\n').flatMap((line) => {
    const match = /^\s*deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)/.exec(line);
    return match?.[1] === undefined || match[2] === undefined
      ? []
      : [{ uri: match[1], suites: [match[2]] }];
  });
}

/**
 * Reads the deb822 form: paragraphs of `Types:`, `URIs:` and `Suites:`, with comments and continued
 * lines.
 */
function parseSourcesFile(text: string): AptSource[] {
  const withoutComments = text
    .split('\n')
    .filter((line) => !line.startsWith('#'))
    .join('\n');
  return withoutComments.split(/\n\s*\n/).flatMap((paragraph) => {
    const fields = new Map<string, string[]>();
    for (const match of paragraph.matchAll(/^([\w-]+):((?:.*)(?:\n[ \t].*)*)/gm)) {
      fields.set(
        (match[1] ?? '').toLowerCase(),
        (match[2] ?? '').split(/\s+/).filter((word) => word !== ''),
      );
    }
    if (
      !(fields.get('types') ?? []).includes('deb') ||
      fields.get('enabled')?.[0]?.toLowerCase() === 'no'
    )
      return [];
    return (fields.get('uris') ?? []).map((uri) => ({ uri, suites: fields.get('suites') ?? [] }));
  });
}

/**
 * The mirror that serves the release itself (not its security updates, not a third party): it has
 * every other suite too. Third parties use the names of releases as well, but only Debian has
 * `-updates` of them, or is called "debian".
 */
function debianMirror(sources: readonly AptSource[], codename: string): string | undefined {
  const releases = [codename, 'stable', 'testing', 'unstable', 'sid'];
  const serving = sources.filter(({ suites }) => suites.some((suite) => releases.includes(suite)));
  const updates = new Set(releases.map((release) => `${release}-updates`));
  const updated = new Set(
    sources
      .filter(({ suites }) => suites.some((suite) => updates.has(suite)))
      .map(({ uri }) => uri),
  );
  const own =
    serving.find(({ uri }) => updated.has(uri)) ??
    serving.find(({ uri }) => /\/debian\/?$/.test(uri));
  return (own ?? serving[0])?.uri;
}

/**
 * The mirror this Debian machine installs its packages from, or undefined when it is no Debian or
 * has none.
 */
export async function machineMirror(): Promise<string | undefined> {
  const release = await readFile('/etc/os-release', 'utf8').catch(() => '');
  if (!/^ID=["']?debian["']?$/m.test(release)) return undefined;
  const codename = /^VERSION_CODENAME=["']?(\w+)["']?$/m.exec(release)?.[1] ?? 'sid';
  return debianMirror(await machineSources(), codename);
}

/** All of the machine's apt sources. */
export async function machineSources(): Promise<AptSource[]> {
  const directory = join(APT, 'sources.list.d');
  const sources = parseListFile(await readFile(join(APT, 'sources.list'), 'utf8').catch(() => ''));
  for (const name of await namesIn(directory)) {
    const text = await readFile(join(directory, name), 'utf8');
    if (name.endsWith('.list')) sources.push(...parseListFile(text));
    if (name.endsWith('.sources')) sources.push(...parseSourcesFile(text));
  }
  return sources;
}

/**
 * The machine's apt settings about expired indexes: its mirror may be a frozen copy, which apt
 * takes only when told so.
 */
export async function validityOptions(): Promise<string[]> {
  const directory = join(APT, 'apt.conf.d');
  const files = (await namesIn(directory)).map((name) => join(directory, name));
  const found = await Promise.all(
    files.map(async (file) =>
      (await readFile(file, 'utf8').catch(() => '')).includes('Check-Valid-Until') ? [file] : [],
    ),
  );
  return found.flat();
}

/** The names in a directory in apt's order; none when there is no such directory. */
async function namesIn(directory: string): Promise<string[]> {
  const names = await readdir(directory).catch(() => []);
  return names.toSorted((a, b) => (a < b ? -1 : 1));
}
