/** A checkout by Git for Windows, which writes CR LF, starts in WSL. */
import { expect, test } from '@jest/globals';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from '../tools/program.ts';
import { ROOT } from '../tools/root.ts';
import { folderOfFile } from './support/folder.ts';

const folder = join(folderOfFile(), 'clone');

test('scripts, Makefile and image keep their line ends with core.autocrlf', async () => {
  const clone = ['clone', '--quiet', '--no-hardlinks', '--depth=1', `file://${ROOT}`, folder];
  await run('git', ['-c', 'core.autocrlf=true', '-c', 'core.eol=crlf', ...clone]);
  const inClone = (...args: string[]) => run('git', ['-C', folder, ...args]);
  const files = (await inClone('ls-files', '-z')).out.split('\0').filter((path) => path !== '');
  const texts = files.map((path) => [path, readFileSync(join(folder, path), 'latin1')] as const);
  const scripts = texts.filter(([, text]) => /^#!.*\b(ba)?sh\b/.test(text)).map(([path]) => path);
  expect(scripts).toEqual(expect.arrayContaining(['deploy/local/with-node.sh']));
  for (const script of scripts) await run('bash', ['-n', join(folder, script)]);
  const isText = (text: string): boolean => !text.includes('\0');
  expect(texts.filter(([, text]) => isText(text) && text.includes('\r\n'))).toEqual([]);
  const { out } = await run('make', ['-C', folder, '--no-print-directory', 'help']);
  expect(out).toContain('List the targets');
});
