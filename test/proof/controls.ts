/** Runs that must lose: they show that faults, audit and checker see a broken promise. */
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Fault } from '../faults/fault.ts';
import { messageOf } from '../../deploy/local/stores/wait.ts';
import { faultsNamed } from '../faults/list.ts';
import type { Change } from '../mutants/list.ts';
import { changedCopy } from '../support/source-of.ts';
import { playLeg, type Leg } from './leg.ts';

interface Control {
  readonly about: string;
  readonly fault: string;
  /** A setting of PostgreSQL, or a change of the service. */
  readonly postgresql?: string;
  readonly change?: Change;
}

const SUBMIT = 'internal/ingest/submit-application.ts';

export const controls: Readonly<Record<string, Control>> = {
  'fsync-off': {
    about: 'the database does not sync its files',
    fault: 'power-cut',
    postgresql: 'fsync=off',
  },
  'acknowledged-before-commit': {
    about: 'ingest answers 202 before its insert has ended',
    fault: 'mongodb-hung-ingest-killed',
    change: {
      file: SUBMIT,
      find: 'const result = await recording;',
      replace: "const result = fault === undefined ? { kind: 'stored' } : await recording;",
    },
  },
  'withdrawals-dropped': {
    about: 'ingest forgets to withdraw what it answered 500',
    fault: 'mongodb-hung',
    change: { file: SUBMIT, find: 'tools.withdrawals.add(record);', replace: '' },
  },
};

const TIMES = 2;
/** A control that has lost nothing by then has failed. */
const MOST_LEGS = 6;
const ACKS = 200;

/** The number of violations that each judge found. */
export interface ControlResult {
  readonly name: string;
  readonly about: string;
  readonly acks: number;
  readonly audit: number;
  readonly checker: number;
}

/** Plays legs until both judges have found a violation, or `MOST_LEGS` of them. */
export async function playControl(
  name: string,
  folder: string,
  { seed, signal, log }: { seed: number; signal: AbortSignal; log: (line: string) => void },
): Promise<ControlResult> {
  const { about, fault: faultName, postgresql, change } = controls[name]!;
  await mkdir(folder, { recursive: true });
  // Of an interrupted run.
  for (const old of await readdir(folder))
    if (old !== 'world') await rm(join(folder, old), { recursive: true });
  const project =
    change === undefined ? undefined : await changedCopy(join(folder, 'service'), [change]);
  const faults = Array<Fault>(TIMES).fill(faultsNamed([faultName])[0]!);
  const changed = {
    ...(postgresql !== undefined && { postgresql: [postgresql] }),
    ...(project !== undefined && { project }),
  };
  const legs: Leg[] = [];
  const sum = (of: (leg: Leg) => number): number => legs.reduce((all, leg) => all + of(leg), 0);
  const byAudit = (): number => sum(({ found }) => found);
  const byChecker = (): number => sum(({ unexplained }) => unexplained.length);
  for (let number = 1; number <= MOST_LEGS && (byAudit() === 0 || byChecker() === 0); number += 1) {
    const plan = { number, seed, acks: ACKS, faults, folder, ...changed };
    try {
      legs.push(await playLeg(plan, { soon: signal, now: signal }));
    } catch (error) {
      if (signal.aborted) throw error;
      // Where files are not synced, PostgreSQL may not start again: nothing is left to be judged.
      log(`control ${name}, leg ${number}: ${messageOf(error)}`);
    }
  }
  for (const left of ['world', 'service'])
    await rm(join(folder, left), { recursive: true, force: true });
  const result = {
    name,
    about,
    acks: sum(({ acks }) => acks),
    audit: byAudit(),
    checker: byChecker(),
  };
  log(`control ${name}: ${result.audit} by the audit, ${result.checker} by the checker`);
  return result;
}
