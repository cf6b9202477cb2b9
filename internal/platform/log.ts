/**
 * Structured logs: one JSON object a line on standard output. Personal data and keys are never
 * handed to it.
 */
import { pino } from 'pino';
import { withDeadline } from './deadline.ts';

export type Logger = pino.Logger;

/** Beyond this many bytes that nobody has read, lines are dropped. */
const MAX_UNREAD_BYTES = 1_000_000;

/**
 * pino's own way to standard output waits until the line is written. With a reader that has stopped
 * the process would neither serve nor end.
 */
const output = {
  write(line: string): void {
    if (process.stdout.writableLength < MAX_UNREAD_BYTES) process.stdout.write(line);
  },
};
let isWatched = false;

/** Resolves when all lines are written, or after `withinMs`. */
export async function logWritten(withinMs: number): Promise<void> {
  const written = new Promise<void>((resolve) => process.stdout.write('', () => resolve()));
  await withDeadline(written, withinMs, 'writing the log').catch(() => {});
}

/** A logger whose lines carry the process name; `level` as in LOG_LEVEL. */
export function createLogger(service: string, level: string): Logger {
  // A reader that has gone must not end the process.
  if (!isWatched) process.stdout.on('error', () => {});
  isWatched = true;
  const options: pino.LoggerOptions = {
    level,
    base: { service },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label) => ({ level: label }) },
    // An error of a driver can quote the document or command it failed on, so only its class and
    // code are logged.
    serializers: { err: describeError },
  };
  return pino(options, output);
}

/** The safe part of an error: class, code and our own stack, never the message. */
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

/** The lines of the stack below the message, whose own lines may look like frames. */
function framesOf(error: Error): string[] {
  const { stack = '', message } = error;
  const start = stack.indexOf(message);
  const frames = start === -1 ? '' : stack.slice(start + message.length);
  return frames.split('\n').filter((line) => /^\s+at /.test(line));
}
