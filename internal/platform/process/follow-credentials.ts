/**
 * Ends a process whose stores refuse its credentials once their files have changed, so that it
 * starts again with the new ones. A healthy process keeps its credentials; a rollout uses new ones,
 * and stops at the first pod that does not become ready.
 */
import { statSync } from 'node:fs';
import { allOf, type Probe } from '../http/admin-server.ts';
import { ConfigError, type FoundBeside } from './config.ts';
import { isAccessFault } from '../stores/contact-failure.ts';
import type { Logger } from './log.ts';
import type { Loops } from './loop.ts';

const LOOK_EVERY_MS = 5_000;
const FAILS_AFTER_MS = 30_000;

export interface Credentials {
  /** When each file that the process read at its start was written, by `NAME_FILE`. */
  readonly files: FoundBeside['files'];
  /** Whether a new start would use other credentials. Throws `ConfigError`. */
  changed(): boolean;
  /** Drains and exits with 0, as a first signal does. */
  leave(): void;
}

export function followCredentials(parts: {
  readonly credentials?: Credentials | undefined;
  readonly ready: readonly Probe[];
  readonly warnings: readonly Probe[];
  readonly loops: Pick<Loops<'credentials'>, 'start' | 'lastErrors'>;
  readonly log: Logger;
}): void {
  const { credentials, ready, warnings, loops, log } = parts;
  if (credentials === undefined) return;
  let wasRefused = false;
  loops.start({
    name: 'credentials',
    everyMs: LOOK_EVERY_MS,
    failsAfterMs: FAILS_AFTER_MS,
    reason: (error) => {
      const words = error instanceof ConfigError ? error.faults.join('; ') : 'see the log';
      return `the files with credentials changed, but not for use: ${words}`;
    },
    run: async () => {
      const changed = credentials.changed();
      const told = await allOf([...ready, ...warnings, loops.lastErrors]);
      const reason = told.find(isAccessFault);
      // The refusal must last: a starting server may refuse for a moment.
      if (changed && wasRefused && reason !== undefined) {
        log.info({ reason }, 'not let in any more, and credentials changed; leaving');
        credentials.leave();
      }
      wasRefused = reason !== undefined;
    },
  });
}

/** When each file that a MongoDB URI names was written; the driver reads them once. */
export function filesOfUri(uri: string): Readonly<Record<string, number | undefined>> {
  const options = new URLSearchParams(uri.split('?')[1]);
  const files = [...options].filter(([name]) => /^tls(?:CA|CertificateKey|CRL)File$/i.test(name));
  return Object.fromEntries(
    files.map(([name, file]) => [name, statSync(file, { throwIfNoEntry: false })?.mtimeMs]),
  );
}
