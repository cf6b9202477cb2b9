import { expect, test } from '@jest/globals';
import { entriesOf, parseVersion, sectionOf, withHeading, type Version } from './version.ts';

const versionOf = (text: string): Version => {
  const parsed = parseVersion(text);
  if (parsed.kind === 'wrong') throw new Error(`${text} is no version`);
  return parsed.version;
};
const CHANGELOG =
  '# Changelog\n\n## Unreleased\n\n### Added\n\n- One thing\n  on two lines.\n\n## 0.0.9 - 2026-01-01\n\n- Old.\n';

test.each(['0.1', 'v0.1.0', '0.1.0-beta', '0.1.0-rc.0', '01.0.0', '0.1.0 ', '0.1.0;true', ''])(
  'refuses %j as a version',
  (text) => expect(parseVersion(text)).toEqual({ kind: 'wrong' }),
);

test('gives the topmost section the heading of the version, once', () => {
  const candidate = withHeading(CHANGELOG, versionOf('0.1.0-rc.1'), '2026-11-25');
  const first = candidate.kind === 'written' ? candidate.text : '';
  expect(first).toBe(CHANGELOG.replace('## Unreleased', '## 0.1.0-rc.1 - 2026-11-25'));
  expect(withHeading(first, versionOf('0.1.0-rc.1'), '2026-11-26')).toEqual({
    kind: 'has heading',
  });
  const release = withHeading(first, versionOf('0.1.0'), '2026-12-01');
  expect(release).toEqual({
    kind: 'written',
    text: CHANGELOG.replace('## Unreleased', '## 0.1.0 - 2026-12-01'),
  });
});

test('refuses a release without changes', () => {
  const released = CHANGELOG.replace('## Unreleased', '## 0.1.0 - 2026-12-01');
  expect(withHeading(released, versionOf('0.2.0'), '2026-12-02')).toEqual({ kind: 'no changes' });
});

test('reads the entries of one version', () => {
  const section =
    sectionOf(CHANGELOG.replace('## Unreleased', '## 0.1.0 - 2026-12-01'), '0.1.0') ?? '';
  expect(entriesOf(section)).toEqual([{ kind: 'added', description: 'One thing on two lines.' }]);
});
