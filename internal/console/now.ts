/** The first page: are partners well, is work going out, what is wrong, and who is affected. */
import { kinds, type Kind } from '../view/check-records.ts';
import { gauge, type Activity } from './activity.ts';
import type { Pod } from './readings.ts';

/** Kinds of dead letters on the first page; the page of dead letters has all. */
const DEAD_KINDS_SHOWN = 10;

/** `bad` stops something; `warn` does not yet. */
export interface Problem {
  readonly weight: 'bad' | 'warn';
  readonly who: string;
  readonly what: string;
}

const PROCESSES = ['ingest', 'processor', 'controller'];
const WAITS: Readonly<Record<string, string>> = {
  relay: 'e-mails wait for the relay',
  database: 'work waits for the database',
};

export function nowView(activity: Activity) {
  const { pods, stored } = activity;
  const last = activity.rounds.at(-1);
  return {
    at: last?.at,
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

function problemsOf({ pods, stored: { fault } }: Activity, begun: boolean): Problem[] {
  const absent = PROCESSES.filter(
    (name) => begun && !pods.some(({ component }) => component === name),
  );
  return [
    ...absent.map((who): Problem => ({ weight: 'bad', who, what: `no ${who} answers` })),
    ...shared(pods, 'bad', ({ faults }) => faults),
    ...(fault === undefined ? [] : [{ weight: 'bad', who: 'console', what: fault } as const]),
    ...Object.entries(WAITS).flatMap(([waitsFor, what]): Problem[] => {
      const paused = pods.filter((pod) => gauge([pod], 'worker_paused', { waits_for: waitsFor }));
      const all = pods.filter(({ component }) => component === 'processor').length;
      return paused.length === 0
        ? []
        : [{ weight: 'bad', who: `${paused.length} of ${all} processors`, what }];
    }),
    ...shared(pods, 'warn', ({ warnings }) => warnings),
    ...findingsOf(pods),
  ];
}

/** Pods that say the same share a line. */
function shared(
  pods: readonly Pod[],
  weight: Problem['weight'],
  sentencesOf: (pod: Pod) => readonly string[],
): Problem[] {
  const said = pods.flatMap((pod) =>
    sentencesOf(pod).map((what) => ({ what, who: `${pod.component} ${pod.at}`.trim() })),
  );
  return [...Map.groupBy(said, ({ what }) => what)].map(([what, all]) => ({
    weight,
    what,
    who: all.map(({ who }) => who).join(', '),
  }));
}

/** Of the self-audit that the leading controller makes. */
function findingsOf(pods: readonly Pod[]): Problem[] {
  return Object.entries(kinds).flatMap(([kind, [weight, meaning]]): Problem[] => {
    const count = gauge(pods, 'audit_findings', { kind: kind as Kind }) ?? 0;
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
        rejected,
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
