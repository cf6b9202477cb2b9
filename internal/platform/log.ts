/**
 * Structured logs: one JSON object a line on standard output. Personal data and keys are never
 * handed to it.
 */
import { pino } from 'pino';

export type Logger = pino.Logger;

/** A logger whose lines carry the process name; `level` as in LOG_LEVEL. */
export function createLogger(service: string, level: string): Logger {
  return pino({
    level,
    base: { service },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label) => ({ level: label }) },
    // An error of a driver can quote the document or command it failed on, so only its class and
    // code are logged.
    serializers: { err: describeError },
  });
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
