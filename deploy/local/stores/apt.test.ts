// Tests of reading apt's sources: both forms, and which of several mirrors is Debian's own.

import { expect, test } from '@jest/globals';
import { debianMirror, parseListFile, parseSourcesFile } from './apt.ts';

test('a one-line source gives its address and suite, with or without options', () => {
  const text = [
    '# deb http://commented.example/debian bookworm main',
    'deb http://mirror.example/debian bookworm main contrib',
    'deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] https://other.example/apt stable main',
    'deb-src http://mirror.example/debian bookworm main',
    '',
  ].join('\n');
  expect(parseListFile(text)).toEqual([
    { uri: 'http://mirror.example/debian', suites: ['bookworm'] },
    { uri: 'https://other.example/apt', suites: ['stable'] },
  ]);
});

test('a deb822 source gives each of its addresses with all its suites', () => {
  const text = [
    'Types: deb deb-src',
    '# a comment inside',
    'URIs: http://mirror.example/debian',
    '  http://second.example/debian',
    'Suites: bookworm bookworm-updates',
    'Components: main',
    '',
    'Types: deb',
    'Enabled: no',
    'URIs: http://disabled.example/debian',
    'Suites: bookworm',
    '',
    'types: deb-src',
    'uris: http://sources.example/debian',
    'suites: bookworm',
  ].join('\n');
  expect(parseSourcesFile(text)).toEqual([
    { uri: 'http://mirror.example/debian', suites: ['bookworm', 'bookworm-updates'] },
    { uri: 'http://second.example/debian', suites: ['bookworm', 'bookworm-updates'] },
  ]);
});

test('the mirror is the one that serves the release itself, not its security updates and not a third party', () => {
  const sources = [
    { uri: 'https://node.example', suites: ['nodistro'] },
    { uri: 'https://docker.example/linux/debian', suites: ['bookworm'] },
    { uri: 'http://mirror.example/debian-security', suites: ['bookworm-security'] },
    { uri: 'http://mirror.example/debian', suites: ['bookworm-updates', 'bookworm'] },
  ];
  expect(debianMirror(sources, 'bookworm')).toBe('http://mirror.example/debian');
});
