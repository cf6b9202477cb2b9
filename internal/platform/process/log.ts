/** Structured logs: one JSON object per line on standard output, without personal data or keys. */
import { pino } from 'pino';
import type { Probe } from './probe.ts';
import { withDeadline } from './deadline.ts';
import type { PlainCounter } from './registry.ts';

export type Logger = pino.Logger;

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

export function createLogger(service: string, level: string): Logger {
  // The process must outlive the reader of its log.
  if (process.stdout.listenerCount('error') === 0) process.stdout.on('error', ignore);
  const options: pino.LoggerOptions = {
    level,
    base: { service },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label) => ({ level: label }) },
    // A driver's error can quote a document or command.
    serializers: { err: describeError },
  };
  return pino(options, output);
}

/** Class, code and our own stack frame; a message can quote data. */
export function describeError(error: unknown): Record<string, unknown> {
  if (!(error instanceof Error)) return { type: typeof error };
  const code = (error as { code?: unknown }).code;
  return {
    type: error.name,
    ...(typeof code === 'string' || typeof code === 'number' ? { code } : {}),
    at: framesOf(error)
      .find((line) => !line.includes('node_modules'))
      ?.trim(),
    ...(error.cause === undefined ? {} : { cause: describeError(error.cause) }),
  };
}

/** Skips the message, whose lines may look like frames. */
function framesOf(error: Error): string[] {
  const { stack = '', message } = error;
  const start = stack.indexOf(message);
  const frames = start === -1 ? '' : stack.slice(start + message.length);
  return frames.split('\n').filter((line) => /^\s+at /.test(line));
}
