/** The metrics that every process has. */
import { counter, gauge } from './definition.ts';

export const loops = [
  'backlog',
  'audit',
  'clock',
  'credentials',
  'expiry',
  'holds',
  'key_uses',
  'keys',
  'lease',
  'over_limit',
  'partner_secrets',
  'pods',
  'probe',
  'reconcile',
  'status_waits',
  'stored',
  'unknown_records',
] as const;

export const ofProcess = {
  loopFailing: gauge(
    'loop_failing',
    '1 while a loop of the process has not succeeded for its bound; `/readyz` has the reason.',
    { loop: loops },
  ),
  logLinesDropped: counter('log_lines_dropped', 'Log lines dropped because nobody read them.'),
};
