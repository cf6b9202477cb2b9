/** The first page: are partners well, is work going out, what is wrong, and who is affected. */
import type { SecretProblem } from '../../partner/kept-findings.ts';
import { defined } from '../../platform/process/defined.ts';
import { duration } from './terminal.ts';
import { kinds } from '../../self-audit/rules.ts';
import { MINUTE_MS, startOf, type Counts } from '../../traffic/traffic.ts';
import { utcSeconds } from './words.ts';
import { figuresOf, PARTNERS_SHOWN, total, worstFirst, WRITTEN_WITHIN_S } from './traffic.ts';
import { turnedAwayRows } from './turned-away.ts';
import { gauge, type Activity, type Waits } from './activity.ts';
import type { Pod } from './readings.ts';
import type { DeadCause } from './search.ts';
import type { State } from '../../submission/states.ts';
import runbooks from './runbooks.json' with { type: 'json' };

/** Causes of dead letters on the first page; the page of dead letters has all. */
const DEAD_KINDS_SHOWN = 10;
/** The page of partners has all. */
const SECRETS_SHOWN = 10;

/** Three rounds of reading: what is older may no longer be true. */
const STALE_MS = 30_000;

/** The bounds of the alerts. */
const ACCOUNT_WAITS_S = 600;
const MAIL_WAITS_S = 3_600;
/** Fewer may wait for the servers of their recipients. */
const MANY = 50;
/** Of different applicants: fewer may be the fault of their own servers. */
const NOT_TAKEN = 3;
const REFUSED_SHARE = 0.1;
const REFUSED_LEAST = 5;
/** A smaller share of 500s does not spend a month's error budget within days. */
const FAILED_SHARE = 0.01;
/** The leading controller counts every 10 s. */
const COUNTED_WITHIN_S = 60;

/** `bad` stops something; `warn` does not yet. */
interface NowProblem {
  readonly weight: 'bad' | 'warn';
  readonly who: string;
  readonly what: string;
  /** An example: a request or an account. */
  readonly request?: string;
  readonly partners?: readonly string[];
  /** Requests that are on a list have this state and reason. */
  readonly list?: { readonly state: State; readonly reason?: string };
  /** How many that list has, and when the first and the last of them were received. */
  readonly listed?: Pick<DeadCause, 'count' | 'oldest' | 'last'>;
  /** The server whose fault this is, or perhaps follows from. */
  readonly of?: string;
  /** The page of docs/runbooks and the alert in it; by default that of its server. */
  readonly runbook?: string;
  readonly since?: Date;
}

/** A cause has the problems that follow from it, and the number of requests that wait for it. */
type Cause = NowProblem & {
  readonly effects: readonly NowProblem[];
  /** What it means for people. */
  readonly paused?: NowProblem | undefined;
  readonly waiting?: number | undefined;
};

const PROCESSES = ['ingest', 'processor', 'controller'];
const WAITS = {
  relay: { of: 'Relay', what: 'e-mails wait for the relay', state: 'mail' },
  database: { of: 'MongoDB', what: 'work waits for the database', state: 'account' },
} as const;

export function nowView(activity: Activity, now: Date) {
  const { pods, stored } = activity;
  const last = activity.rounds.at(-1);
  const problems = problemsOf(activity, now);
  const fresh = freshness(activity, now);
  // Readings of one round have one time.
  const readAt = (at: Date | undefined) =>
    at && (at.getTime() - fresh.since.getTime() < STALE_MS ? fresh.since : at);
  return {
    fresh,
    readAt: { pods: readAt(last?.at), stored: readAt(stored.at) },
    lately: activity.lately(now),
    problems,
    causes: groupedByCause(problems, last?.waits),
    marks: marksOf(activity, problems),
    unread: unreadOf(activity),
    putAside: stored.putAside,
    last,
    traffic: trafficOf(stored),
    ...partnerRows(activity),
    turnedAway: {
      from: stored.turnedAway.from,
      until: stored.at,
      ...turnedAwayRows(stored.turnedAway.counts, stored.turnedAway.recorded),
    },
    pods,
  };
}

/** The age of the older reading, and how long each reading is still true. */
function freshness({ startedAt, rounds, stored }: Activity, now: Date) {
  const pods = rounds.at(-1)?.at ?? startedAt;
  const database = stored.at ?? startedAt;
  const leftOf = (at: Date): number => STALE_MS - (now.getTime() - at.getTime());
  const leftMs = { pods: leftOf(pods), stored: leftOf(database) };
  return pods < database
    ? { since: pods, why: 'the console cannot read the pods', leftMs }
    : { since: database, why: stored.fault ?? 'the console cannot read the database', leftMs };
}

/** Names what was not read: without it, an empty list of problems proves nothing. */
function unreadOf({ rounds, stored, pods }: Activity): string[] {
  const parts: [string, boolean][] = [
    ['the pods', rounds.length > 0 && pods.every(({ isUnread }) => !isUnread)],
    ['the database', stored.at !== undefined],
    ['what waits', gauge(pods, 'records') !== undefined],
    ['the self-audit', gauge(pods, 'audit_findings') !== undefined],
  ];
  return parts.flatMap(([name, isRead]) => (isRead ? [] : [name]));
}

/** What pods say of a server is the cause of all else that is of it. */
function groupedByCause(problems: readonly NowProblem[], waits?: Waits): Cause[] {
  const causes = new Map<string, NowProblem>();
  for (const one of problems)
    if (one.of && one.since && !causes.has(one.of)) causes.set(one.of, one);
  return problems
    .flatMap((one): Cause[] => {
      const cause = causes.get(one.of ?? '');
      const runbook = one.runbook ?? (runbooks as Readonly<Record<string, string>>)[one.of ?? ''];
      if (cause === undefined) return [{ ...one, effects: [], ...defined({ runbook }) }];
      const all = problems.filter((other) => other.of === one.of && other !== cause);
      const weight = [cause, ...all].some((each) => each.weight === 'bad') ? 'bad' : 'warn';
      const { state, what } = Object.values(WAITS).find(({ of }) => of === one.of) ?? {};
      const paused = all.find((each) => each.what === what);
      const effects = all.filter((each) => each !== paused);
      const more = defined({ runbook, paused, waiting: state && waits?.[state] });
      return one === cause ? [{ ...cause, ...more, weight, effects }] : [];
    })
    .toSorted(
      (one, other) =>
        worseFirst(one, other) ||
        // What goes on stands above what has ended.
        Number(one.listed !== undefined) - Number(other.listed !== undefined) ||
        other.effects.length - one.effects.length,
    );
}

/** What charts of the last hour mark: starts of processes, as after a release, and faults. */
function marksOf({ pods }: Activity, problems: readonly NowProblem[]) {
  const starts = pods.flatMap((pod) => {
    const seconds = gauge([pod], 'process_start_time_seconds');
    return seconds === undefined ? [] : [{ at: new Date(seconds * 1_000), who: pod.component }];
  });
  const faults = problems.flatMap(({ since: at, of: who }) => (at && who ? [{ at, who }] : []));
  const mark = (
    all: readonly { readonly at: Date; readonly who: string }[],
    words: (who: readonly string[]) => string,
  ) =>
    [...Map.groupBy(all, ({ at }) => startOf(at.getTime(), MINUTE_MS))].map(([ms, some]) => ({
      at: new Date(ms),
      words: words([...new Set(some.map(({ who }) => who))]),
    }));
  const started = (who: readonly string[]): string =>
    who.length > 1 ? 'processes started' : `${who[0]} started`;
  return { starts: mark(starts, started), faults: mark(faults, (who) => who.join(', ')) };
}

const worseFirst = ({ weight }: NowProblem, other: NowProblem): number =>
  weight.localeCompare(other.weight);

/** Worst first. */
function problemsOf(activity: Activity, now: Date): NowProblem[] {
  const { pods, rounds, stored } = activity;
  const { dead, secrets, fault } = stored;
  const isThere = (name: string): boolean => pods.some(({ component }) => component === name);
  const isRead = rounds.length > 0 && pods.every(({ isUnread }) => !isUnread);
  const absent = PROCESSES.filter((name) => isRead && !isThere(name));
  const processors = pods.filter(({ component }) => component === 'processor').length;
  const paused = Object.entries(WAITS).flatMap(([waitsFor, { of, what }]) => {
    const labels = { waits_for: waitsFor };
    const { length } = pods.filter((pod) => gauge([pod], 'worker_paused', labels));
    return length === 0
      ? []
      : [bad(`${length} of ${processors} processor${processors === 1 ? '' : 's'}`, what, of)];
  });
  const all = [
    ...absent.map((name) => bad(name, `no ${name} answers`, undefined, runbooks.absent)),
    ...shared(activity, 'bad', 'faults'),
    ...(fault === undefined ? [] : [bad('database', fault, 'MongoDB')]),
    ...paused,
    ...causesOf(pods, now, secrets.length > 0),
    ...deadLetters(dead),
    ...brokenSecrets(secrets),
    ...findingsOf(activity),
    ...failedShares(activity, now),
    ...atTheirLimit(stored),
    ...shared(activity, 'warn', 'warnings'),
  ];
  return all.toSorted(worseFirst);
}

const problemOf =
  (weight: NowProblem['weight']) =>
  (
    who: string,
    what: string,
    of?: string,
    runbook?: string,
    more?: Pick<NowProblem, 'request' | 'partners' | 'list' | 'listed'>,
  ): NowProblem => ({ weight, who, what, ...defined({ of, runbook }), ...more });
const [bad, warn] = [problemOf('bad'), problemOf('warn')];

/** What alerts report only after minutes. */
function causesOf(pods: readonly Pod[], now: Date, namesSecrets: boolean): NowProblem[] {
  const value = (name: string, labels?: object): number => gauge(pods, name, labels) ?? 0;
  const [account, mail] = ['recorded', 'account_created'].map((state) =>
    value('oldest_waiting_seconds', { state }),
  );
  const waitingMails = value('records', { state: 'account_created' });
  const notTaken = pods.map((pod) => gauge([pod], 'mails_not_taken') ?? 0);
  const refused = notTaken.reduce((sum, one) => sum + one, 0);
  const tried = Math.min(refused, waitingMails);
  const counted = value('backlog_read_timestamp_seconds');
  const countedAgo = now.getTime() / 1_000 - counted;
  const ending = value('partners_keys_ending');
  const ago = (seconds = 0): string => duration(seconds * 1_000);
  const causes: [isSo: boolean, NowProblem][] = [
    [gauge(pods, 'leader') === 0, bad('controller', 'none leads', undefined, runbooks.leader)],
    [
      gauge(pods, 'probe_success') === 0,
      bad(
        'standing probe',
        'its last test submission was not completed',
        'MongoDB',
        runbooks.probe,
      ),
    ],
    [
      gauge(pods, 'probe_mail_success') === 0,
      warn('standing probe', 'the relay did not take its last e-mail', 'Relay', runbooks.probe),
    ],
    [
      account! > ACCOUNT_WAITS_S,
      bad('requests', `one has waited ${ago(account)} for its account`, 'MongoDB', runbooks.waits),
    ],
    [
      mail! > MAIL_WAITS_S && waitingMails >= MANY,
      warn('requests', `many wait for the e-mail, one for ${ago(mail)}`, 'Relay', runbooks.mails),
    ],
    [
      // One with as many warns by itself.
      notTaken.every((one) => one < NOT_TAKEN) && waitingMails >= NOT_TAKEN && refused >= NOT_TAKEN,
      warn('processors', `the relay took none of ${tried} e-mails`, 'Relay'),
    ],
    [
      counted > 0 && countedAgo > COUNTED_WITHIN_S,
      warn('controller', `what waits was counted ${ago(countedAgo)} ago`, 'MongoDB', runbooks.loop),
    ],
    [
      !namesSecrets && value('secret_problems') > 0,
      warn('partner Secrets', 'some cannot be used: see Partners', undefined, runbooks.secrets),
    ],
    [
      ending > 0,
      warn(
        'partner keys',
        `the last key of ${ending === 1 ? 'a partner' : `${ending} partners`} ends within a week, or has ended`,
      ),
    ],
  ];
  return causes.flatMap(([isSo, problem]) => (isSo ? [problem] : []));
}

/** Most frequent first. */
function deadLetters({ causes, from }: Activity['stored']['dead']): NowProblem[] {
  const since = from === undefined ? '' : ` since ${utcSeconds(from)} UTC, or more`;
  const all = causes.map(({ count, partners, why, reason, oldest, last, newest: request }) =>
    bad('partner', `${count} given up (dead letters)${since}: ${why}`, undefined, runbooks.dead, {
      request,
      partners,
      list: { state: 'dead_lettered', ...defined({ reason }) },
      listed: { count, oldest, last },
    }),
  );
  if (from !== undefined && all.length === 0)
    return [bad('console', 'dead letters cannot be counted in time')];
  const further = all.length - DEAD_KINDS_SHOWN;
  const rest = bad('', `${further} further causes of dead letters`, undefined, runbooks.dead, {
    list: { state: 'dead_lettered' },
  });
  return further > 0 ? [...all.slice(0, DEAD_KINDS_SHOWN), rest] : all;
}

/** Pods that say the same share a line. */
function shared(
  activity: Activity,
  weight: NowProblem['weight'],
  said: 'faults' | 'warnings',
): NowProblem[] {
  const all = activity.pods.flatMap((pod) =>
    pod[said].map(({ of, words: what }) => ({
      of,
      what,
      who: `${pod.component} ${pod.name ?? pod.at}`.trim(),
    })),
  );
  return [...Map.groupBy(all, ({ what }) => what)].map(([what, same]) => ({
    weight,
    what,
    who: same.map(({ who }) => who).join(', '),
    ...defined({ of: same[0]?.of, since: activity.toldSince(what) }),
  }));
}

/** A line for each Secret; the controller itself warns of keys that would end. */
function brokenSecrets(problems: readonly SecretProblem[]): NowProblem[] {
  const told = problems.filter(({ code }) => code !== 'keys_would_end');
  const lines = [...Map.groupBy(told, ({ secret }) => secret)].map(
    ([secret, theirs]): NowProblem => {
      const { partnerId = '' } = theirs[0]!;
      const who = secret === '' ? 'partner Secrets' : `Secret ${secret} ${partnerId}`.trim();
      const what = theirs.map(({ message }) => message).join('; ');
      return warn(who, what, undefined, runbooks.secrets);
    },
  );
  const more = lines.length - SECRETS_SHOWN;
  const rest = warn('partner Secrets', `${more} more need correction`);
  return more > 0 ? [...lines.slice(0, SECRETS_SHOWN), rest] : lines;
}

/** Findings of the leading controller's self-audit. */
function findingsOf({ pods, stored }: Activity): NowProblem[] {
  return Object.entries(kinds).flatMap(([kind, { weight, meaning }]): NowProblem[] => {
    const count = gauge(pods, 'audit_findings', { kind }) ?? 0;
    const what = `${count} found: each ${meaning}; see "partner-ingest audit"`;
    const example = stored.findings.find((one) => one.kind === kind)?.id;
    const tell = weight === 'problem' ? bad : warn;
    const line = tell('self-audit', what, undefined, runbooks.audit, defined({ request: example }));
    return count === 0 ? [] : [line];
  });
}

/** Figures of all live requests; undefined before the first reading. */
function trafficOf({ traffic }: Activity['stored']) {
  if (traffic === undefined) return undefined;
  const { hour, rates, ratesBefore, usual, since, countedSince } = traffic;
  return {
    /** Later than an hour ago if nothing was counted before; undefined if nothing was. */
    since: countedSince && (countedSince > since ? countedSince : since),
    writtenWithinS: WRITTEN_WITHIN_S,
    rates,
    ratesBefore,
    usual,
    hour: { ...figuresOf(hour), ...mailsOf(hour) },
  };
}

const mailsOf = ({ finished, mails }: Pick<Counts, 'finished' | 'mails'>) => ({
  finished: total(finished),
  mailsTaken: mails?.['accepted'] ?? 0,
  mailsNotTaken: total(mails) - (mails?.['accepted'] ?? 0),
});

/** Requests answered 500 and e-mails refused, whatever the cause. */
function failedShares(activity: Activity, now: Date): NowProblem[] {
  // The pods know it also while the database takes no counts.
  const { answered, failed } = activity.lately(now);
  const tell = failed / answered >= FAILED_SHARE ? bad : warn;
  const what = `${failed} of ${answered} requests of the last 5 minutes were answered 500`;
  const { undeliverable = 0, completed = 0 } = activity.stored.traffic?.hour.finished ?? {};
  const mails = undeliverable + completed;
  const refused = `${undeliverable} of ${mails} e-mails of the last hour were refused for good`;
  const isRefused = undeliverable >= REFUSED_LEAST && undeliverable / mails > REFUSED_SHARE;
  return [
    ...(failed > 0 ? [tell('partners', what, 'MongoDB', runbooks.failed)] : []),
    ...(isRefused ? [warn('applicants', refused, undefined, runbooks.refused)] : []),
  ];
}

/** A partner at its limit loses requests that no record shows. */
function atTheirLimit({ turnedAway, traffic }: Activity['stored']): NowProblem[] {
  return (traffic?.partners ?? []).flatMap(({ partner, lately }): NowProblem[] => {
    const limited = (lately.answers?.['429'] ?? 0) + (lately.reads?.['429'] ?? 0);
    if (limited === 0) return [];
    const over = turnedAwayRows(
      turnedAway.counts.filter((one) => one.partnerId === partner && !one.test),
      [],
    ).rows.find(({ status }) => status === 429);
    const limit =
      over === undefined ? 'a limit' : `${over.why}: key ${over.key} at ${over.address}`;
    const requests = total(lately.answers) + total(lately.reads);
    const what = `${limited} of ${requests} requests of the last 5 minutes were answered 429: over ${limit}`;
    return [warn('partner', what, undefined, undefined, { partners: [partner] })];
  });
}

/** Worst first, then those without a failed request by what waits, then by name. */
function partnerRows(activity: Activity) {
  const { pods, stored } = activity;
  const { partners: busy = [], seen = 0 } = stored.traffic ?? {};
  const counts = new Map(busy.map((one) => [one.partner, one.counts]));
  const known = new Map(stored.partners.map((one) => [one.partner, one]));
  const waits = new Map<string, number>();
  for (const { name, labels, value } of pods.flatMap(({ samples }) => samples)) {
    const { partner } = labels;
    if (name === 'partner_records' && partner !== undefined)
      waits.set(partner, Math.max(value, waits.get(partner) ?? 0));
  }
  const rows = [...new Set([...known.keys(), ...counts.keys()])]
    .map((partner) => ({
      partner,
      ...figuresOf(counts.get(partner) ?? {}),
      failures: failuresOf(counts.get(partner) ?? {}),
      waiting: waits.get(partner) ?? 0,
      stored: known.get(partner),
    }))
    .toSorted(
      (one, other) =>
        worstFirst(one, other) ||
        other.waiting - one.waiting ||
        (one.partner < other.partner ? -1 : 1),
    );
  const partners = rows.slice(0, PARTNERS_SHOWN);
  const others = Math.max(rows.length, seen) - partners.length;
  return { partners, furtherPartners: others };
}

/** By answer or end, most frequent first. */
function failuresOf({ answers = {}, ends = {} }: Counts) {
  const { completed: _completed, ...failed } = ends;
  return [
    ...Object.entries(answers).filter(([status]) => /^[45]/.test(status)),
    ...Object.entries(failed),
  ]
    .filter(([, count]) => count > 0)
    .map(([got, count]) => ({ got, count }))
    .toSorted((one, other) => other.count - one.count);
}
