/** Checks operators' template folders, and that rendering is safe. */
import { mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { folderOfFile } from '../../test/support/folder.ts';
import {
  TemplateError,
  loadTemplates,
  placeholders,
  templateFiles,
  type TemplateValues,
} from './templates.ts';

const GOOD = {
  subject: 'Welcome\n',
  text: 'Go to {{activationUrl}}\n',
  html: '<a href="{{activationUrl}}">go</a>\n',
};
const values = Object.fromEntries(
  Object.keys(placeholders).map((name) => [name, `<${name}>`]),
) as TemplateValues;

const folders = folderOfFile();

/** A folder with valid templates and the given changes; `undefined` leaves a file out. */
async function folderWith(
  files: Partial<Record<keyof typeof templateFiles, string | Uint8Array | undefined>>,
): Promise<string> {
  const folder = await mkdtemp(join(folders, 'one-'));
  for (const [kind, content] of Object.entries({ ...GOOD, ...files })) {
    if (content !== undefined)
      await writeFile(join(folder, templateFiles[kind as keyof typeof templateFiles]), content);
  }
  return folder;
}

async function faultsOf(folder: string): Promise<readonly string[]> {
  const error: unknown = await loadTemplates(folder).catch((thrown: unknown) => thrown);
  return error instanceof TemplateError ? error.faults : [];
}

test('the built-in templates have no faults and name every placeholder', async () => {
  const { subject, text, html } = await loadTemplates();
  expect(subject).toBe('Your account is ready: how to log in');
  for (const name of Object.keys(placeholders)) {
    expect(text(values)).toContain(`<${name}>`);
    expect(html(values)).toContain(`&lt;${name}&gt;`);
  }
  expect(`${text(values)}${html(values)}`).not.toMatch(/[{}]{2}/);
});

test('a folder of templates replaces all three', async () => {
  const folder = await folderWith({ text: '\ufeffHi {{ userName }}\r\n{{activationUrl}}\r\n' });
  const { subject, text, html } = await loadTemplates(folder);
  expect(subject).toBe('Welcome');
  expect(text(values)).toBe('Hi <userName>\n<activationUrl>\n');
  expect(html({ ...values, activationUrl: `https://x.example/?a=1&b="'<` })).toBe(
    '<a href="https://x.example/?a=1&amp;b=&quot;&#39;&lt;">go</a>\n',
  );
});

test('a placeholder or replacement pattern inside a value stays as it is', async () => {
  const { text } = await loadTemplates(await folderWith({}));
  expect(text({ ...values, activationUrl: "{{loginUrl}}$&$1$'" })).toBe(
    "Go to {{loginUrl}}$&$1$'\n",
  );
});

test.each<[Parameters<typeof folderWith>[0], string]>([
  [{ html: undefined }, 'html: cannot be read (ENOENT)'],
  [{ html: Uint8Array.of(0xff, 0xfe) }, 'html: is not UTF-8'],
  [
    { text: `${GOOD.text}\n{{nmae}}` },
    'txt: line 3: {{nmae}} is unknown; there are businessName, ',
  ],
  [{ text: '{{activationUrl}}\n{{loginUrl}' }, 'txt: line 2: braces without a partner'],
  [{ text: '{{loginUrl}}' }, 'txt: has no {{activationUrl}}: nobody could log in'],
  [{ subject: 'Welcome\nBcc: x' }, 'subject.txt: must be one line without control characters'],
  [{ html: `${GOOD.html}<a title={{userName}}>` }, 'html: line 2: an attribute without quotes'],
  [
    { html: `${GOOD.html}<a href="{{businessName}}">` },
    'html: line 2: href and src take loginUrl and activationUrl only',
  ],
  [
    { html: `${GOOD.html}<script>x = "{{userName}}"</script>` },
    'html: line 2: a placeholder inside <script> or <style>',
  ],
])('the fault of %j is that %s', async (files, fault) => {
  expect(await faultsOf(await folderWith(files))).toEqual([
    expect.stringContaining(`login-instructions.${fault}`),
  ]);
});

test('all faults are reported together, with the folder', async () => {
  const folder = await folderWith({ subject: '', text: undefined, html: '{{' });
  await expect(loadTemplates(folder)).rejects.toThrow(
    new RegExp(`^MAIL_TEMPLATES: 4 fault\\(s\\) in ${folder}:\n`),
  );
});
