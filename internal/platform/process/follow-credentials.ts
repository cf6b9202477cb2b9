/**
 * Ends a process whose stores refuse its credentials once their files have changed, so that it
 * starts again with the new ones. A healthy process keeps its credentials, and says if a new start
 * would be refused; a rollout uses new ones, and stops at the first pod that does not become ready.
 */
import { statSync } from 'node:fs';
import { allOf, type Probe, type Fault } from './fault.ts';
import { ConfigError, type FoundBeside } from './config.ts';
import type { Logger } from './log.ts';
import type { Loops } from './loop.ts';
import type { ServerCode } from './server-words.ts';

const LOOK_EVERY_MS = 5_000;
const FAILS_AFTER_MS = 30_000;
/** Each trial is a login. */
const TRY_AGAIN_MS = 60_000;
/** A starting server may refuse for a moment. */
const REFUSED_ROUNDS = 2;
/** Most restarts and failovers of a server are over by then. */
const UNCLEAR_ROUNDS = 6;

/** Our credentials or certificates are refused. */
const REFUSED: readonly ServerCode[] = [
  'login_first',
  'login_refused',
  'right_missing',
  'certificate_wanted',
  'certificate_refused',
  'certificate_ended',
  'certificate_file',
  'tls_ended',
  'certificate_untrusted',
];
/** Some servers end the connection, or answer nothing, where others send an alert of TLS. */
const PERHAPS_REFUSED: readonly ServerCode[] = [
  'connection_ended',
  'no_answer',
  'tls_disagrees',
  'no_primary',
];

/** The fault by which a server refuses our credentials, surely or perhaps. */
export function refusalIn(faults: readonly Fault[]) {
  const oneOf = (codes: readonly string[]) => faults.find(({ code }) => codes.includes(code));
  const sure = oneOf(REFUSED);
  return { fault: sure ?? oneOf(PERHAPS_REFUSED), isSure: sure !== undefined };
}

/**
 * Returns why a new start would be refused; `next` are its settings, if its credentials are others
 * than those in use.
 */
export type Trial = (next: unknown) => Promise<Fault | undefined>;

class RefusedError extends Error {}

export interface Credentials {
  /** When each file that the process read at its start was written, by `NAME_FILE`. */
  readonly files: FoundBeside['files'];
  /** The settings of a new start if it would use other credentials. Throws `ConfigError`. */
  changed(): object | undefined;
  /** Drains and exits with 0, as a first signal does. */
  leave(): void;
}

export function followCredentials(parts: {
  readonly credentials?: Credentials | undefined;
  readonly ready: readonly Probe[];
  readonly warnings: readonly Probe[];
  readonly trials: readonly Trial[];
  readonly loops: Pick<Loops<'credentials'>, 'start' | 'lastErrors'>;
  readonly log: Logger;
}): void {
  const { credentials, ready, warnings, trials, loops, log } = parts;
  if (credentials === undefined) return;
  let rounds = 0;
  /** What was tried last, when, and why it was refused. */
  let tried = { what: '', atMs: 0, why: [] as readonly string[] };
  const tryOut = async (next: object | undefined): Promise<void> => {
    const what = JSON.stringify(next ?? null);
    const isKnown = what === tried.what && performance.now() - tried.atMs < TRY_AGAIN_MS;
    // Without other credentials it costs no login.
    if (next === undefined || !isKnown) {
      const faults = await Promise.all(trials.map((trial) => trial(next)));
      const why = faults.flatMap((fault) => fault?.words ?? []);
      tried = { what, atMs: performance.now(), why };
    }
    if (tried.why.length > 0) throw new RefusedError(tried.why.join('; '));
  };
  loops.start({
    name: 'credentials',
    everyMs: LOOK_EVERY_MS,
    failsAfterMs: FAILS_AFTER_MS,
    faultOf: (error) => {
      const why = error instanceof ConfigError ? error.faults.join('; ') : 'see the log';
      const words =
        error instanceof RefusedError
          ? `files changed, and a new start would be refused: ${error.message}`
          : `the files with credentials changed, but not for use: ${why}`;
      return { code: 'credentials_unusable', words };
    },
    run: async () => {
      const next = credentials.changed();
      const { fault, isSure } = refusalIn(await allOf([...ready, ...warnings, loops.lastErrors]));
      rounds = fault === undefined ? 0 : rounds + 1;
      if (next === undefined || rounds < (isSure ? REFUSED_ROUNDS : UNCLEAR_ROUNDS))
        return await tryOut(next);
      log.info({ reason: fault?.words }, 'not let in any more, and credentials changed; leaving');
      credentials.leave();
    },
  });
}

/** When each file that a MongoDB URI names was written; the driver reads them once. */
export function filesOfUri(uri: string): Readonly<Record<string, number | undefined>> {
  const options = new URLSearchParams(uri.split('?')[1]);
  return writtenAt(
    [...options].filter(([name]) => /^tls(?:CA|CertificateKey|CRL)File$/i.test(name)),
  );
}

/** In ms; undefined for a file that is not there. */
export function writtenAt(files: readonly (readonly [name: string, file: string])[]) {
  return Object.fromEntries(
    files.map(([name, file]) => [name, statSync(file, { throwIfNoEntry: false })?.mtimeMs]),
  );
}
