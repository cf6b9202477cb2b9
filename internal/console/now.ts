/** The first page: are partners well, is work going out, what is wrong, and who is affected. */
import { kinds } from '../view/check-records.ts';
import { gauge, type Activity } from './activity.ts';
import type { Pod } from './readings.ts';

/** Kinds of dead letters on the first page; the page of dead letters has all. */
const DEAD_KINDS_SHOWN = 10;

/** Three rounds of reading: what is older may no longer be true. */
const STALE_MS = 30_000;

/** `bad` stops something; `warn` does not yet. */
interface Problem {
  readonly weight: 'bad' | 'warn';
  readonly who: string;
  readonly what: string;
}

const PROCESSES = ['ingest', 'processor', 'controller'];
const WAITS: Readonly<Record<string, string>> = {
  relay: 'e-mails wait for the relay',
  database: 'work waits for the database',
};

export function nowView(activity: Activity, now: Date) {
  const { pods, stored } = activity;
  const last = activity.rounds.at(-1);
  return {
    fresh: freshness(activity, now),
    readAt: { pods: last?.at, stored: stored.at },
    problems: problemsOf(activity, last !== undefined),
    last,
    /** By step; undefined where no controller has counted. */
    waiting: {
      account: gauge(pods, 'records', { state: 'recorded' }),
      mail: gauge(pods, 'records', { state: 'account_created' }),
      onHold: gauge(pods, 'records_on_hold'),
      delayed: gauge(pods, 'queue_jobs', { state: 'delayed' }),
    },
    oldestSeconds: gauge(pods, 'oldest_waiting_seconds'),
    dead: stored.dead.slice(0, DEAD_KINDS_SHOWN),
    partners: partnerRows(activity),
    pods,
  };
}

/** Of what was read longest ago. */
function freshness({ startedAt, rounds, stored }: Activity, now: Date) {
  const [oldest] = [
    { at: rounds.at(-1)?.at ?? startedAt, why: 'the console cannot read the pods' },
    { at: stored.at ?? startedAt, why: stored.fault ?? 'the console cannot read the database' },
  ].toSorted((one, other) => one.at.getTime() - other.at.getTime());
  const { at: since, why } = oldest!;
  return { since, why, leftMs: STALE_MS - (now.getTime() - since.getTime()) };
}

function problemsOf({ pods, stored: { fault } }: Activity, begun: boolean): Problem[] {
  const bad = (who: string, what: string): Problem => ({ weight: 'bad', who, what });
  const isThere = (name: string): boolean => pods.some(({ component }) => component === name);
  const absent = PROCESSES.filter((name) => begun && !isThere(name));
  const processors = pods.filter(({ component }) => component === 'processor').length;
  const paused = Object.entries(WAITS).flatMap(([waitsFor, what]) => {
    const labels = { waits_for: waitsFor };
    const { length } = pods.filter((pod) => gauge([pod], 'worker_paused', labels));
    return length === 0 ? [] : [bad(`${length} of ${processors} processors`, what)];
  });
  return [
    ...absent.map((name) => bad(name, `no ${name} answers`)),
    ...shared(pods, 'bad', 'faults'),
    ...(fault === undefined ? [] : [bad('console', fault)]),
    ...paused,
    ...shared(pods, 'warn', 'warnings'),
    ...findingsOf(pods),
  ];
}

/** Pods that say the same share a line. */
function shared(
  pods: readonly Pod[],
  weight: Problem['weight'],
  said: 'faults' | 'warnings',
): Problem[] {
  const all = pods.flatMap((pod) =>
    pod[said].map((what) => ({ what, who: `${pod.component} ${pod.at}`.trim() })),
  );
  return [...Map.groupBy(all, ({ what }) => what)].map(([what, same]) => ({
    weight,
    what,
    who: same.map(({ who }) => who).join(', '),
  }));
}

/** Of the self-audit that the leading controller makes. */
function findingsOf(pods: readonly Pod[]): Problem[] {
  return Object.entries(kinds).flatMap(([kind, { weight, meaning }]): Problem[] => {
    const count = gauge(pods, 'audit_findings', { kind }) ?? 0;
    const what = `${count} found: each ${meaning}; see "partner-ingest audit"`;
    return count === 0
      ? []
      : [{ weight: weight === 'problem' ? 'bad' : 'warn', who: 'self-audit', what }];
  });
}

function partnerRows(activity: Activity) {
  const counts = activity.partners();
  const stored = activity.stored.partners;
  const counted = [counts.requests, counts.rejected].flatMap(Object.keys);
  const names = new Set([...stored.map(({ partner }) => partner), ...counted]);
  return [...names]
    .map((partner) => {
      const [requests = 0, rejected = 0] = [counts.requests[partner], counts.rejected[partner]];
      return {
        partner,
        requests,
        // Undefined without a request in the last hour. Work of earlier minutes may be decided in this hour.
        share: requests === 0 ? undefined : Math.min(1, rejected / requests),
        waiting: gauge(activity.pods, 'partner_records', { partner }) ?? 0,
        stored: stored.find((one) => one.partner === partner),
      };
    })
    .toSorted(
      (one, other) => other.requests - one.requests || (one.partner < other.partner ? -1 : 1),
    );
}
