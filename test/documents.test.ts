/** Checks that what pages, runbooks, examples and NOTES.txt name exists. */
import { dirname, join, normalize } from 'node:path';
import { expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { generatedDocs } from '../tools/generate-docs.ts';
import { commands, programOf } from '../internal/operators/cli/command-line.ts';
import { optionsAt } from '../internal/operators/cli/command.ts';
import { describeSettings } from '../tools/describe-settings.ts';
import { BLOCKS, blockOf, blocksOf, type WalkedPage } from './e2e/page-blocks.ts';
import { dashboardPanels } from './support/dashboard.ts';
import { faults, found, read, type Page } from './support/pages.ts';
import { missingIn } from './support/promql.ts';

/** Names of Kubernetes, MongoDB, Redis and other tools. */
const FOREIGN = new Set(
  [
    'ContainerCreating CrashLoopBackOff FailedMount OOMKilled',
    'readWrite createIndex evicted_keys maxmemory_policy uptime_in_seconds',
    'LC_ALL OTEL_BSP_MAX_QUEUE_SIZE end_session_endpoint',
    'ignoreDifferences selfHeal valueFiles',
  ].flatMap((names) => names.split(' ')),
);

const sources = found(
  '{cmd,internal,deploy,test,tools}/**/*.{ts,lua,sh,html,txt,toml}',
  'charts/**/*.{yaml,tpl,mjs}',
  'Makefile',
  'Dockerfile',
  'package.json',
  '.oxlintrc.json',
)
  .filter((path) => path !== 'test/documents.test.ts')
  .map(read);
const words = new Set(sources.flatMap((text) => text.match(/[A-Za-z_$][\w$]*/g) ?? []));
const makefile = read('Makefile');
const targets = new Set([...makefile.matchAll(/^([a-z0-9-]+):/gm)].map(([, target]) => target));
const settings = new Set(describeSettings().flatMap(({ name }) => [name, `${name}_FILE`]));
const alerts = new Set(read('charts/partner-ingest/files/alerts.yaml').match(/PartnerIngest\w+/g));
const values = parse(read('charts/partner-ingest/values.yaml')) as Record<string, unknown>;

const slug = (heading: string): string =>
  heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-');

function brokenLinks({ path, text }: Page): string[] {
  if (!path.endsWith('.md')) return [];
  return [...text.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target = '']) => target)
    .filter((target) => !/^[a-z]+:/.test(target))
    .filter((target) => {
      const [file = '', anchor] = target.split('#');
      const to = file === '' ? path : normalize(join(dirname(path), file));
      if (found(to).length === 0) return true;
      if (anchor === undefined) return false;
      return ![...read(to).matchAll(/^#+ (.+)$/gm)].some(
        ([, heading = '']) => slug(heading) === anchor,
      );
    })
    .map((target) => `link to ${target}`);
}

const PATH = /^(?:cmd|internal|deploy|test|tools|charts|docs)\/[\w@.*{},/-]+$/;

function missingFiles({ spans, lines }: Page): string[] {
  return (
    [...spans, ...lines]
      // `kubectl … deploy/NAME` is a Deployment.
      .flatMap((code) =>
        (code.includes('kubectl') ? code.replaceAll(/ deploy\/\S+/g, '') : code).split(/[\s'"]+/),
      )
      .filter((word) => PATH.test(word))
      .map((word) => word.replace(/\/$/, ''))
      .filter((word) => found(word).length === 0)
      .map((word) => `file ${word}`)
  );
}

function unknownSettings({ spans, lines }: Page): string[] {
  return [...spans, ...lines]
    .flatMap((code) => code.match(/(?<![\w.$-])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?![\w-])/g) ?? [])
    .filter((name) => !settings.has(name) && !words.has(name) && !FOREIGN.has(name))
    .map((name) => `setting ${name}`);
}

/** The words of a command line up to a pipe, a redirection or another command. */
function shellWords(line: string): string[] {
  const command = /^(?:"[^"]*"|'[^']*'|[^|;&>#"'`)])*/.exec(line)?.[0] ?? '';
  return (command.match(/(?:"[^"]*"|'[^']*'|[^\s"'])+/g) ?? []).map((word) =>
    word.replaceAll(/["']/g, ''),
  );
}

const output = { writeOut: () => {}, writeErr: () => {}, outputError: () => {} };
const program = () => programOf(new Date(), output, () => Promise.resolve());

function filledIn(code: string): string {
  return code.replaceAll('<address>', 'jane@example.com').replaceAll(/<(\w+)>/g, '$1');
}

function commandOf(line: readonly string[]) {
  return commands.find(({ name }) => `${line.join(' ')} `.startsWith(`${name} `));
}

/** A command begins a line or follows one of these signs. */
const COMMAND =
  /(?:^\s*|[;|(]\s*|-- )(?:partner-ingest|node dist\/cmd\/cli\/main\.js) +([a-z][^\n]*)/g;

function wrongCommands({ spans, lines }: Page): string[] {
  const wrong: string[] = [];
  for (const code of [...spans, ...lines]) {
    for (const [, rest = ''] of filledIn(code).matchAll(COMMAND)) {
      try {
        // A sentence may name a command without its arguments.
        const line = shellWords(rest);
        if (commandOf(line)?.name !== line.join(' ')) program().parse(line, { from: 'user' });
      } catch (error) {
        wrong.push(`command ${rest}: ${String(error)}`);
      }
    }
  }
  return wrong;
}

/** Checks spans such as `retry --state dead_lettered`. */
function wrongOptions({ spans }: Page): string[] {
  return spans.flatMap((span) => {
    const command = commandOf(shellWords(span));
    const given = [...span.matchAll(/--([a-z-]+)/g)].map(([, option = '']) => option);
    if (command === undefined) return [];
    const all = optionsAt(new Date());
    const takes = command.options.map((option) => all[option].flags.slice(2).split(' ')[0]);
    return given
      .filter((option) => ![...takes, 'json', 'help'].includes(option))
      .map((option) => `option --${option} of ${command.name}`);
  });
}

/** Says whether the Makefile or a test reads the variable. */
function isRead(variable: string): boolean {
  return (
    makefile.includes(`$(${variable})`) ||
    sources.some((text) => text.includes(`process.env['${variable}']`))
  );
}

function wrongTargets({ spans, lines }: Page): string[] {
  return [...spans, ...lines].flatMap((code) =>
    [...code.matchAll(/(?:^|[\s;(])make ([a-z][a-z0-9-]*)((?: [A-Z_]+=\S+)*)/g)].flatMap(
      ([, target = '', given = '']) => [
        ...(targets.has(target) ? [] : [`make ${target}`]),
        ...[...given.matchAll(/([A-Z_]+)=/g)].flatMap(([, name = '']) =>
          isRead(name) ? [] : [`make ${target} ${name}=`],
        ),
      ],
    ),
  );
}

const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
const { services } = parse(read('compose.yaml'), { merge: true }) as { services: object };

/** Checks files that Node runs, scripts of npm and services of compose.yaml. */
function missingPrograms({ path, spans, lines }: Page): string[] {
  const all = (pattern: RegExp): string[] =>
    [...spans, ...lines].flatMap((code) =>
      [...code.matchAll(pattern)].map(([, name = '']) => name),
    );
  const sourceOf = (file: string): string =>
    file.replace(/^dist\/(.+)\.js$/, '$1.ts').replace('NAME', '*');
  return [
    ...all(/\bnode (?:--\S+ )*([\w./-]+\.[mc]?[jt]s)\b/g)
      .filter((file) => found(sourceOf(file), join(dirname(path), file)).length === 0)
      .map((file) => `node ${file}`),
    ...all(/\bnpm run (?:-s )?([a-z:]+)/g)
      .filter((script) => !(script in scripts))
      .map((script) => `npm run ${script}`),
    ...all(/\bdocker compose (?:exec|logs|restart|run) (?:-\S+ )*([a-z-]+)/g)
      .filter((service) => !(service in services))
      .map((service) => `docker compose service ${service}`),
  ];
}

/** Checks full names anywhere, and names without their prefix in spans. */
function wrongMetrics({ text, spans }: Page): string[] {
  const short = spans
    .filter((span) =>
      /^[a-z][a-z0-9_]+(?:_total|_seconds|_bytes)(?:\{.*\})?$|^[a-z][a-z0-9_]+\{\w+(?:=~|!~|!=|=)".*\}$/.test(
        span,
      ),
    )
    .filter((span) => !/^(?:partner_ingest|nodejs|process)_/.test(span) && !FOREIGN.has(span))
    .map((span) => `partner_ingest_${span}`);
  const selectors = [
    ...short,
    ...(text.match(/\b(?:partner_ingest|nodejs|process)_[a-z0-9_]+(?:\{[^}\n]*\})?/g) ?? []),
  ];
  return selectors.flatMap(missingIn).filter((what) => !words.has(what));
}

function unknownAlerts({ text }: Page): string[] {
  return (text.match(/\bPartnerIngest[A-Z]\w+/g) ?? [])
    .filter((name) => !alerts.has(name))
    .map((name) => `alert ${name}`);
}

/** Checks paths of chart values, also behind `--set`. */
function unknownValues({ spans, lines }: Page): string[] {
  const paths = [
    ...spans,
    ...lines.flatMap((line) =>
      [...line.matchAll(/--set(?:-\w+)? +'?([\w.]+)=/g)].map(([, name = '']) => name),
    ),
  ];
  return paths
    .map((path) => /^([a-z]\w*(?:\.\w+)+)(?:[:=].*)?$/.exec(path)?.[1])
    .filter((path) => path !== undefined)
    .filter((path) => (path.split('.')[0] ?? '') in values && !hasPath(values, path.split('.')))
    .map((path) => `value ${path}`);
}

function hasPath(value: unknown, [first, ...rest]: readonly string[]): boolean {
  if (first === undefined) return true;
  if (typeof value !== 'object' || value === null) return false;
  // An empty map takes any key.
  if (Object.keys(value).length === 0) return true;
  return first in value && hasPath((value as Record<string, unknown>)[first], rest);
}

/** Checks spans that look like a name in a program: with an underscore or a capital inside. */
function unknownNames({ spans }: Page): string[] {
  return spans
    .filter((span) =>
      /^[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+$|^[A-Za-z][a-z0-9]+[A-Z]\w*$/.test(span),
    )
    .filter(
      (name) =>
        !words.has(name) &&
        !FOREIGN.has(name) &&
        !settings.has(name) &&
        !/^(?:partner_ingest|nodejs|process)_/.test(name),
    )
    .map((name) => `name ${name}`);
}

/** Checks names of panels in runbooks: a capital, then words in small letters. */
function unknownPanels({ path, spans }: Page): string[] {
  if (!path.startsWith('docs/runbooks/')) return [];
  const titles = new Set(dashboardPanels.map(({ title }) => title));
  return spans
    .filter((span) => /^[A-Z][a-z-]+(?:,? [a-z0-9%-]+)*$/.test(span))
    .filter((span) => !titles.has(span) && !FOREIGN.has(span))
    .map((span) => `panel ${span}`);
}

test.each([
  ['links and their headings', brokenLinks],
  ['files', missingFiles],
  ['settings of the environment', unknownSettings],
  ['commands of partner-ingest', wrongCommands],
  ['options of partner-ingest', wrongOptions],
  ['targets of make and their variables', wrongTargets],
  ['programs of Node, npm and compose.yaml', missingPrograms],
  ['metrics, labels and their values', wrongMetrics],
  ['alerts', unknownAlerts],
  ['values of the chart', unknownValues],
  ['names in the code', unknownNames],
  ['panels of the dashboard', unknownPanels],
])('pages name only what exists: %s', (_kind, check) => {
  expect(faults(check)).toEqual([]);
});

test.each(Object.keys(BLOCKS) as WalkedPage[])(
  'make e2e runs each unmarked block of commands of %s',
  (page) => {
    const run = BLOCKS[page].map((beginning) => blockOf(page, beginning as never));
    expect(blocksOf(page).filter((block) => !run.includes(block))).toEqual([]);
    const fences = read(page).match(/^[ \t]*```\S.*/gm) ?? [];
    expect(fences.filter((fence) => !['```sh', '```sh untested'].includes(fence))).toEqual([]);
  },
);

test('.gitattributes marks every generated file, and only files that exist', async () => {
  const marked = [...read('.gitattributes').matchAll(/^(\S+) linguist-generated/gm)].map(
    ([, path = '']) => path,
  );
  expect(marked.filter((path) => found(path).length === 0)).toEqual([]);
  const files = new Set(marked.flatMap((path) => found(path)));
  expect([...(await generatedDocs()).keys()].filter((path) => !files.has(path))).toEqual([]);
});
