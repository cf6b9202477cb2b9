/** Checks the form of each alert's first command. */
import { expect, test } from '@jest/globals';
import { alertSections, faults, found, pages, read, type Page } from './support/pages.ts';

const alerts = new Set(read('charts/partner-ingest/files/alerts.yaml').match(/PartnerIngest\w+/g));
/** One line of shell, then the pattern of its output during the fault. */
const FIRST_COMMAND = /^```sh\n(.+)\n```\n\nLook for: `(.+)`\n/m;
const PROGRAMS = ['kubectl', 'partner-ingest', 'logs', 'metrics', 'redis', 'queue', 'grep', 'tail'];
const GET_UP = /^\*\*Get up\*\*: \S/m;

function wrongFirstCommand({ text }: Page): string[] {
  const [, command = '', pattern = ''] = FIRST_COMMAND.exec(text) ?? [];
  if (command === '') return ['no first command with "Look for: `pattern`"'];
  const bare = command.replaceAll(/'[^']*'|"\$\w+(?:-\w+)?"/g, 'x');
  const programs = bare.split(/[;|]/).map((part) => part.trim().split(' ')[0] ?? '');
  const variables = [...command.replaceAll(/'[^']*'/g, '').matchAll(/\$(\w+)/g)].map(
    ([, name = '']) => name,
  );
  return [
    ...programs
      .filter((program) => !PROGRAMS.includes(program))
      .map((program) => `program ${program}`),
    ...variables
      .filter((name) => !['NS', 'RELEASE', 'NAME', 'POD'].includes(name))
      .map((name) => `variable ${name}`),
    ...(/kubectl [^;|]* logs (?!.*--tail=)/.test(command)
      ? ['kubectl logs -l gives ten lines without --tail']
      : []),
    ...(/ (?:-f|--follow|--watch|-w) /.test(command) ? ['never ends'] : []),
    ...(/\baudit\b(?!.* --since)/.test(command) ? ['audit without --since reads everything'] : []),
    ...(isPattern(pattern) ? [] : [`pattern ${pattern}`]),
    ...textsAskedFor(command, pattern)
      .filter((asked) => !log.includes(asked))
      .map((asked) => `no log line has ${asked}`),
  ];
}

function isPattern(pattern: string): boolean {
  try {
    return !new RegExp(pattern, 'm').test('');
  } catch {
    return false;
  }
}

const log = found('{cmd,internal}/**/*.ts')
  .filter((path) => !path.endsWith('.test.ts'))
  .map((path) => read(path).replaceAll(/^\s*(?:\/\/|\/?\*).*$/gm, ''))
  .join('\n');

/** Texts of the log that a command or its pattern searches. */
function textsAskedFor(command: string, pattern: string): string[] {
  const greps = [...command.matchAll(/\blogs .*?(?=;|$)/g)].flatMap(([logs]) => [
    ...logs.matchAll(/(?:grep (?:-E )?|logs \w+ \w+ )'([^']*)'/g),
  ]);
  if (greps.length === 0) return [];
  // The alternatives of the pattern that are texts of logs; one with a brace is a metric.
  const inLogs = pattern.split('|').filter((part) => !part.includes(String.raw`\{`));
  return [inLogs.join('|'), ...greps.map(([, asked = '']) => asked)]
    .flatMap((asked) =>
      asked.replaceAll(/\(([^()]*)\)/g, '$1').split(/\||\.\*|[":]+|\[[^\]]*\]\+?/),
    )
    .map((asked) => asked.trim())
    .filter((asked) => /^[a-z]/.test(asked));
}

test('the first command of each alert uses only what exists, ends, and says what to look for', () => {
  expect(alertSections).toHaveLength(alerts.size);
  expect(faults(wrongFirstCommand, alertSections)).toEqual([]);
  const setup =
    pages.find(({ path }) => path === 'docs/runbooks/README.md')?.lines.join('\n') ?? '';
  for (const name of ['partner-ingest', 'logs', 'metrics', 'redis', 'queue'])
    expect(setup).toContain(`\n${name}() {`);
  for (const name of ['NS', 'RELEASE', 'NAME', 'POD'])
    expect(setup).toMatch(new RegExp(`(?:^| )${name}=`, 'm'));
});

test('each alert says whether someone has to get up', () => {
  expect(faults(({ text }) => (GET_UP.test(text) ? [] : ['nobody']), alertSections)).toEqual([]);
});

test('no runbook empties Redis, filters the log by a number, or retries without a bound', () => {
  const wrong = /FLUSH(?:ALL|DB)|"level":\d|redis-cli|retry --state \w+ (?!.*--since)/;
  expect(
    faults(
      ({ spans, lines }) => [...spans, ...lines].filter((code) => wrong.test(code)),
      alertSections,
    ),
  ).toEqual([]);
});
