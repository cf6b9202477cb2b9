/** Structured logs: one JSON object per line on standard output, without personal data or keys. */
import { pino } from 'pino';
import type { Probe } from './fault.ts';
import { withDeadline } from './deadline.ts';
import type { PlainCounter } from './registry.ts';

interface Types {
  readonly text: string;
  readonly number: number;
  readonly boolean: boolean;
  readonly object: object;
  readonly error: unknown;
}

/**
 * Every field of a line, with its one type in all processes: an index refuses a line whose field
 * has another type than in the first one. None has the name of an object of the Elastic Common
 * Schema, except those that `ecs` renames.
 */
export const LOG_FIELDS = {
  action: 'text',
  admin: 'text',
  body_sha256: 'text',
  bounces: 'number',
  complete: 'boolean',
  config: 'object',
  err: 'error',
  exitCode: 'number',
  failure: 'text',
  hint: 'text',
  holder: 'text',
  id: 'text',
  job_id: 'text',
  keys: 'number',
  kind: 'text',
  last_error: 'text',
  loop: 'text',
  ms: 'number',
  nameless: 'text',
  namespace: 'text',
  operator: 'text',
  operator_audit: 'object',
  partner: 'text',
  probes: 'number',
  problem: 'text',
  put: 'number',
  reason: 'text',
  remove: 'number',
  request_id: 'text',
  result: 'text',
  results: 'object',
  role: 'text',
  said: 'text',
  seconds: 'number',
  secret: 'text',
  signal: 'text',
  status: 'number',
  step: 'text',
  sub: 'text',
  told: 'text',
  trace_id: 'text',
  untold: 'number',
  url: 'text',
  verdict: 'object',
} as const satisfies Readonly<Record<string, keyof Types>>;

export type LogFields = {
  readonly [Name in keyof typeof LOG_FIELDS]?: Types[(typeof LOG_FIELDS)[Name]] | undefined;
};

interface LogLine {
  (fields: LogFields, message: string): void;
  (message: string): void;
}

type Level = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal';

export type Logger = Readonly<Record<Level, LogLine>> & Pick<pino.Logger, 'isLevelEnabled'>;

/** What reads the lines: our own names, Google Cloud's, or the Elastic Common Schema's. */
export const LOG_FORMATS = ['json', 'gcp', 'ecs'] as const;
export type LogFormat = (typeof LOG_FORMATS)[number];

/** Lines are dropped while this much is unread. */
const MAX_UNREAD_BYTES = 1_000_000;

const dropped = { lines: 0, count: (): void => {} };

/** pino's own output blocks until a line is written, so a stopped reader would stop the process. */
const output = {
  write(line: string): void {
    if (process.stdout.writableLength < MAX_UNREAD_BYTES) {
      process.stdout.write(line);
      return;
    }
    dropped.lines += 1;
    dropped.count();
  },
};

/** Counts dropped lines from now on. The probe warns while the reader of the log stands still. */
export function watchLog(lines: PlainCounter): Probe {
  dropped.count = () => lines.inc();
  return () => {
    if (process.stdout.writableLength < MAX_UNREAD_BYTES) return [];
    const words = `nobody reads the log: ${dropped.lines} lines dropped since the start`;
    return [{ code: 'log_unread', words }];
  };
}

const ignore = (): void => {};

export async function logWritten(withinMs: number): Promise<void> {
  const written = new Promise<void>((resolve) => process.stdout.write('', () => resolve()));
  await withDeadline(written, withinMs, 'writing the log').catch(() => {});
}

export function createLogger(
  service: string,
  level: string,
  format: LogFormat = 'json',
  to: pino.DestinationStream = output,
): Logger {
  // The process must outlive the reader of its log.
  if (process.stdout.listenerCount('error') === 0) process.stdout.on('error', ignore);
  const options: pino.LoggerOptions = {
    level,
    base: { service },
    timestamp: pino.stdTimeFunctions.isoTime,
    // A driver's error can quote a document or command.
    serializers: { err: (error: unknown) => describeError(error) },
    formatters: { level: (label) => ({ level: label }) },
  };
  return pino({ ...options, ...formats[format](service) }, to);
}

const SEVERITIES: Readonly<Record<string, string>> = {
  trace: 'DEBUG',
  debug: 'DEBUG',
  info: 'INFO',
  warn: 'WARNING',
  error: 'ERROR',
  fatal: 'CRITICAL',
} satisfies Record<Level, string>;

/** `level` stays in each, because the commands of the alerts search for it. */
const formats: Readonly<Record<LogFormat, (service: string) => pino.LoggerOptions>> = {
  json: () => ({}),
  /** Google's "structured logging": without `severity` an error would be shown as information. */
  gcp: () => ({
    messageKey: 'message',
    formatters: {
      level: (level) => ({ severity: SEVERITIES[level], level }),
      log: ({ trace_id: trace, ...fields }) => ({
        ...fields,
        ...(trace === undefined ? {} : { trace_id: trace, 'logging.googleapis.com/trace': trace }),
      }),
    },
  }),
  /** The Elastic Common Schema, 8.11; `log.level` is one name there, by its logging specification. */
  ecs: (service) => ({
    messageKey: 'message',
    base: { 'ecs.version': '8.11.0', service: { name: service } },
    timestamp: () => `,"@timestamp":"${new Date().toISOString()}"`,
    formatters: {
      level: (level) => ({ 'log.level': level, level }),
      log: ({ trace_id: id, url: full, err, ...fields }) => ({
        ...fields,
        ...(id === undefined ? {} : { trace: { id } }),
        ...(full === undefined ? {} : { url: { full } }),
        ...(err === undefined ? {} : { error: ecsError(describeError(err)) }),
      }),
    },
  }),
};

function ecsError({ at, ...told }: Record<string, unknown>): object {
  return at === undefined ? told : { ...told, stack_trace: at };
}

/** Causes may be circular. */
const MAX_DEPTH = 5;

/** Class, code and our own stack frame; a message can quote data. */
export function describeError(error: unknown, depth = MAX_DEPTH): Record<string, unknown> {
  if (!(error instanceof Error)) return { type: typeof error };
  const code = (error as { code?: unknown }).code;
  return {
    type: error.name,
    ...(typeof code === 'string' || typeof code === 'number' ? { code: String(code) } : {}),
    at: framesOf(error)
      .find((line) => !line.includes('node_modules'))
      ?.trim(),
    ...(error.cause === undefined || depth <= 1
      ? {}
      : { cause: describeError(error.cause, depth - 1) }),
  };
}

/** Skips the message, whose lines may look like frames. */
function framesOf(error: Error): string[] {
  const { stack = '', message } = error;
  const start = stack.indexOf(message);
  const frames = start === -1 ? '' : stack.slice(start + message.length);
  return frames.split('\n').filter((line) => /^\s+at /.test(line));
}
