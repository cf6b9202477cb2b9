/** Log lines: no error's message, which can quote data, and fields as their readers want them. */
import { expect, test } from '@jest/globals';
import { createLogger, describeError, LOG_FIELDS, LOG_FORMATS, type LogFormat } from './log.ts';

test('an error is logged by class, code and cause, without its message', () => {
  const error = new TypeError('canary@example.com is taken', {
    cause: Object.assign(new Error('canary'), { code: 'ECONNREFUSED' }),
  });
  const told = describeError(error);
  expect(told).toMatchObject({ type: 'TypeError', cause: { type: 'Error', code: 'ECONNREFUSED' } });
  expect(JSON.stringify(told)).not.toContain('canary');
  expect(describeError('canary')).toEqual({ type: 'string' });
});

test('causes that go in a circle are logged a few times', () => {
  const error = new TypeError('canary');
  error.cause = new Error('canary', { cause: error });
  expect(JSON.stringify(describeError(error)).match(/TypeError/g)).toHaveLength(3);
});

test('a message that looks like a stack frame is not logged', () => {
  const told = describeError(new Error('duplicate key\n    at canary (canary.ts:1:1)'));
  expect(told['at']).toMatch(/^at .*log\.test\.ts.*:\d+:\d+\)?$/);
  expect(JSON.stringify(told)).not.toContain('canary');
});

/** Objects of the Elastic Common Schema 8.11; a text under such a name is refused by its index. */
const ECS_OBJECTS =
  'agent as client cloud code_signature container data_stream destination device dll dns ecs elf email error event faas file geo group hash host http interface log macho network observer orchestrator organization os package pe process registry related risk rule server service source span threat tls trace transaction url user user_agent vlan volume vulnerability x509';

function linesIn(format: LogFormat): Record<string, unknown>[] {
  const lines: string[] = [];
  const to = { write: (line: string) => void lines.push(line) };
  const log = createLogger('ingest', 'trace', format, to);
  const codes = ['ECONNREFUSED', 11_000].map((code) => Object.assign(new Error('a'), { code }));
  for (const err of codes) log.error({ err, trace_id: 'a1', request_id: 'r' }, 'failed');
  log.warn({ step: 'mail', failure: 'ours' }, 'away');
  log.info({ url: 'http://[::]:8080' }, 'serving');
  log.fatal('ends');
  log.debug('step');
  expect(lines.every((line) => line.indexOf('\n') === line.length - 1)).toBe(true);
  // The commands of the alerts search for these, whatever the format is.
  expect(lines[2]).toMatch(/"level":"warn".*"step":"mail","failure":"ours"/);
  return lines.map((line) => JSON.parse(line) as Record<string, unknown>);
}

test.each(LOG_FORMATS)('each field of a line in %s has one type', (format) => {
  const types = new Map<string, string>();
  const read = (value: unknown, path: string): void => {
    const type = typeof value;
    if (type === 'object')
      for (const [name, inner] of Object.entries(value as object)) read(inner, `${path}.${name}`);
    expect([path, types.get(path) ?? type]).toEqual([path, type]);
    types.set(path, type);
  };
  for (const line of linesIn(format)) read(line, '');
});

test('Google Cloud finds severity, message, time and trace', () => {
  const lines = linesIn('gcp');
  const severities = ['ERROR', 'ERROR', 'WARNING', 'INFO', 'CRITICAL', 'DEBUG'];
  expect(lines.map(({ severity }) => severity)).toEqual(severities);
  expect(lines[1]).toMatchObject({
    message: 'failed',
    time: expect.stringMatching(/^\d{4}-.*Z$/),
    'logging.googleapis.com/trace': 'a1',
    err: { type: 'Error', code: '11000' },
  });
  expect(lines[1]).not.toHaveProperty('msg');
});

test('Elastic finds its own names, and no text where it has an object', () => {
  const lines = linesIn('ecs');
  expect(lines[1]).toMatchObject({
    '@timestamp': expect.stringMatching(/^\d{4}-.*Z$/),
    'log.level': 'error',
    'ecs.version': expect.stringMatching(/^8\./),
    message: 'failed',
    service: { name: 'ingest' },
    trace: { id: 'a1' },
    error: { type: 'Error', code: '11000', stack_trace: expect.stringContaining('log.test.ts') },
    request_id: 'r',
  });
  expect(lines[3]).toMatchObject({ url: { full: 'http://[::]:8080' } });
  const objects = ECS_OBJECTS.split(' ');
  for (const line of lines)
    for (const [name, value] of Object.entries(line))
      if (objects.includes(name)) expect([name, typeof value]).toEqual([name, 'object']);
  const named = Object.keys(LOG_FIELDS).filter((name) => objects.includes(name));
  expect(named).toEqual(['url']);
  for (const gone of ['msg', 'time', 'err', 'trace_id']) expect(lines[1]).not.toHaveProperty(gone);
});
