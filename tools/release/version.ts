/** What a version may be, and what it does to the changelog. */

export interface Version {
  readonly text: string;
  /** Such as 0.1.0 of 0.1.0-rc.1. */
  readonly core: string;
  readonly isPrerelease: boolean;
}

export type ParsedVersion =
  { readonly kind: 'version'; readonly version: Version } | { readonly kind: 'wrong' };

export function parseVersion(text: string): ParsedVersion {
  const number = '(?:0|[1-9]\\d*)';
  const match = new RegExp(`^(${number}\\.${number}\\.${number})(-rc\\.[1-9]\\d*)?$`).exec(text);
  if (match?.[1] === undefined) return { kind: 'wrong' };
  return {
    kind: 'version',
    version: { text, core: match[1], isPrerelease: match[2] !== undefined },
  };
}

const TOP = /^## (.+)$/m;

export type Changelog =
  | { readonly kind: 'has heading' }
  | { readonly kind: 'written'; readonly text: string }
  | { readonly kind: 'no changes' };

/**
 * Gives the changelog with the version's heading. The topmost section gets it: `Unreleased`, or an
 * earlier candidate of the same version.
 */
export function withHeading(changelog: string, { text, core }: Version, date: string): Changelog {
  if (sectionOf(changelog, text) !== undefined) return { kind: 'has heading' };
  const [heading, top = ''] = TOP.exec(changelog) ?? [];
  const isOurs = top === 'Unreleased' || top.startsWith(`${core}-rc.`);
  if (heading === undefined || !isOurs) return { kind: 'no changes' };
  return { kind: 'written', text: changelog.replace(heading, `## ${text} - ${date}`) };
}

/** The text under the version's heading. */
export function sectionOf(changelog: string, version: string): string | undefined {
  const section = changelog.split(/^(?=## )/m).find((part) => part.startsWith(`## ${version} - `));
  return section?.replace(/^.*\n/, '').trim();
}

/** The entries of a section, one line each, by the heading they stand under, such as `Added`. */
export function entriesOf(
  section: string,
): { readonly kind: string; readonly description: string }[] {
  return section.split(/^(?=### )/m).flatMap((part) => {
    const kind = (/^### (.+)$/m.exec(part)?.[1] ?? 'Changed').toLowerCase();
    return [...part.matchAll(/^- (.+(?:\n {2}.+)*)/gm)].map(([, entry = '']) => ({
      kind,
      description: entry.replaceAll(/\s+/g, ' ').replaceAll('**', ''),
    }));
  });
}
