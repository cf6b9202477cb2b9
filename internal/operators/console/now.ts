/** The first page: are partners well, is work going out, what is wrong, and who is affected. */
import type { SecretProblem } from '../../partner/kept-findings.ts';
import { defined } from '../../platform/process/defined.ts';
import { duration } from '../view/terminal.ts';
import { kinds } from '../../self-audit/rules.ts';
import type { Counts } from '../../traffic/traffic.ts';
import { utcSeconds } from '../view/words.ts';
import {
  figuresOf,
  PARTNERS_SHOWN,
  timeBelow,
  worstFirst,
  WRITTEN_WITHIN_S,
} from '../view/traffic.ts';
import { turnedAwayRows } from '../view/turned-away.ts';
import { gauge, type Activity } from './activity.ts';
import type { Pod } from './readings.ts';

/** Kinds of dead letters on the first page; the page of dead letters has all. */
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
  readonly partner?: string;
  /** The server whose fault this is, or perhaps follows from. */
  readonly of?: string;
  readonly since?: Date;
}

/** A cause has the problems that follow from it. */
type Cause = NowProblem & { readonly effects: readonly NowProblem[] };

const PROCESSES = ['ingest', 'processor', 'controller'];
const WAITS: Readonly<Record<string, { readonly of: string; readonly what: string }>> = {
  relay: { of: 'Relay', what: 'e-mails wait for the relay' },
  database: { of: 'MongoDB', what: 'work waits for the database' },
};

export function nowView(activity: Activity, now: Date) {
  const { pods, stored } = activity;
  const last = activity.rounds.at(-1);
  const problems = problemsOf(activity, now);
  return {
    fresh: freshness(activity, now),
    readAt: { pods: last?.at, stored: stored.at },
    problems,
    causes: groupedByCause(problems),
    /** Since when at least a pod has told of something that it still tells of. */
    wrongSince: problems.flatMap(({ since }) => since ?? []).toSorted(byTime)[0],
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

/** The age of the older reading. */
function freshness({ startedAt, rounds, stored }: Activity, now: Date) {
  const [oldest] = [
    { at: rounds.at(-1)?.at ?? startedAt, why: 'the console cannot read the pods' },
    { at: stored.at ?? startedAt, why: stored.fault ?? 'the console cannot read the database' },
  ].toSorted((one, other) => one.at.getTime() - other.at.getTime());
  const { at: since, why } = oldest!;
  return { since, why, leftMs: STALE_MS - (now.getTime() - since.getTime()) };
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
function groupedByCause(problems: readonly NowProblem[]): Cause[] {
  const causes = new Map<string, NowProblem>();
  for (const one of problems)
    if (one.of && one.since && !causes.has(one.of)) causes.set(one.of, one);
  return problems
    .flatMap((one): Cause[] => {
      const cause = causes.get(one.of ?? '');
      if (cause === undefined) return [{ ...one, effects: [] }];
      const effects = problems.filter((other) => other.of === one.of && other !== cause);
      const weight = [cause, ...effects].some((each) => each.weight === 'bad') ? 'bad' : 'warn';
      return one === cause ? [{ ...cause, weight, effects }] : [];
    })
    .toSorted(worseFirst);
}

const byTime = (one: Date, other: Date): number => one.getTime() - other.getTime();

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
    return length === 0 ? [] : [bad(`${length} of ${processors} processors`, what, { of })];
  });
  const all = [
    ...absent.map((name) => bad(name, `no ${name} answers`)),
    ...shared(activity, 'bad', 'faults'),
    ...(fault === undefined ? [] : [bad('console', fault, { of: 'MongoDB' })]),
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

const bad = (who: string, what: string, links: Partial<NowProblem> = {}): NowProblem => ({
  weight: 'bad',
  who,
  what,
  ...links,
});

/** What alerts report only after minutes. */
function causesOf(pods: readonly Pod[], now: Date, namesSecrets: boolean): NowProblem[] {
  const value = (name: string, labels?: object): number => gauge(pods, name, labels) ?? 0;
  const [account, mail] = ['recorded', 'account_created'].map((state) =>
    value('oldest_waiting_seconds', { state }),
  );
  const counted = value('backlog_read_timestamp_seconds');
  const countedAgo = now.getTime() / 1_000 - counted;
  const ending = value('partners_keys_ending');
  const ago = (seconds: number): string => duration(seconds * 1_000);
  const warn = (who: string, what: string, of?: string): NowProblem => ({
    weight: 'warn',
    who,
    what,
    ...defined({ of }),
  });
  const causes: [isSo: boolean, NowProblem][] = [
    [gauge(pods, 'leader') === 0, bad('controller', 'none leads')],
    [
      gauge(pods, 'probe_success') === 0,
      bad('standing probe', 'its last test submission was not completed', { of: 'MongoDB' }),
    ],
    [
      gauge(pods, 'probe_mail_success') === 0,
      warn('standing probe', 'the relay did not take its last e-mail', 'Relay'),
    ],
    [
      account! > ACCOUNT_WAITS_S,
      bad('requests', `one has waited ${ago(account!)} for its account`, { of: 'MongoDB' }),
    ],
    [
      mail! > MAIL_WAITS_S && value('records', { state: 'account_created' }) >= MANY,
      warn('requests', `many wait for the e-mail, one for ${ago(mail!)}`, 'Relay'),
    ],
    [
      counted > 0 && countedAgo > COUNTED_WITHIN_S,
      warn('controller', `what waits was counted ${ago(countedAgo)} ago`, 'MongoDB'),
    ],
    [
      !namesSecrets && value('secret_problems') > 0,
      warn('partner Secrets', 'some cannot be used: see Partners'),
    ],
    [
      ending > 0,
      warn('partner keys', `the last key of ${ending} partner(s) ends within a week, or has ended`),
    ],
  ];
  return causes.flatMap(([isSo, problem]) => (isSo ? [problem] : []));
}

/** Most frequent first. */
function deadLetters({ lines, from }: Activity['stored']['dead']): NowProblem[] {
  const since = from === undefined ? '' : ` since ${utcSeconds(from)} UTC, or more`;
  const all = lines.map(({ count, partner, why, newest: request }) =>
    bad('partner', `${count} given up (dead letters)${since}: ${why}`, { request, partner }),
  );
  if (from !== undefined && all.length === 0)
    return [bad('console', 'dead letters cannot be counted in time')];
  const further = all.length - DEAD_KINDS_SHOWN;
  const rest = bad('', `${further} further kinds of dead letters`);
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
      who: `${pod.component} ${pod.at}`.trim(),
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
      return { weight: 'warn', who, what: theirs.map(({ message }) => message).join('; ') };
    },
  );
  const more = lines.length - SECRETS_SHOWN;
  const rest = {
    weight: 'warn',
    who: 'partner Secrets',
    what: `${more} more need correction`,
  } as const;
  return more > 0 ? [...lines.slice(0, SECRETS_SHOWN), rest] : lines;
}

/** Findings of the leading controller's self-audit. */
function findingsOf({ pods, stored }: Activity): NowProblem[] {
  return Object.entries(kinds).flatMap(([kind, { weight, meaning }]): NowProblem[] => {
    const count = gauge(pods, 'audit_findings', { kind }) ?? 0;
    const what = `${count} found: each ${meaning}; see "partner-ingest audit"`;
    const example = stored.findings.find((one) => one.kind === kind)?.id;
    const line = { who: 'self-audit', what, ...defined({ request: example }) };
    return count === 0 ? [] : [{ weight: weight === 'problem' ? 'bad' : 'warn', ...line }];
  });
}

/** Figures of all live requests; undefined before the first reading. */
function trafficOf({ traffic }: Activity['stored']) {
  if (traffic === undefined) return undefined;
  const { hour, hourBefore, lately, usual, since, countedSince } = traffic;
  return {
    /** Later than an hour ago if nothing was counted before; undefined if nothing was. */
    since: countedSince && (countedSince > since ? countedSince : since),
    writtenWithinS: WRITTEN_WITHIN_S,
    usual,
    hour: { ...figuresOf(hour), ...mailsOf(hour) },
    hourBefore: { ...figuresOf(hourBefore), ...mailsOf(hourBefore) },
    acceptP99Ms: timeBelow(lately.accept, 0.99),
    acceptP99BeforeMs: timeBelow(hourBefore.accept, 0.99),
  };
}

const total = (counts: Readonly<Record<string, number>> = {}): number =>
  Object.values(counts).reduce((sum, count) => sum + count, 0);

const mailsOf = ({ finished, mails }: Pick<Counts, 'finished' | 'mails'>) => ({
  finished: total(finished),
  mailsTaken: mails?.['accepted'] ?? 0,
  mailsNotTaken: total(mails) - (mails?.['accepted'] ?? 0),
});

/** Requests answered 500 and e-mails refused, whatever the cause. */
function failedShares(activity: Activity, now: Date): NowProblem[] {
  // The pods know it also while the database takes no counts.
  const { answered, failed } = activity.lately(now);
  const weight = failed / answered >= FAILED_SHARE ? 'bad' : 'warn';
  const what = `${failed} of ${answered} requests of the last 5 minutes were answered 500`;
  const { undeliverable = 0, completed = 0 } = activity.stored.traffic?.hour.finished ?? {};
  const mails = undeliverable + completed;
  const refused = `${undeliverable} of ${mails} e-mails of the last hour were refused for good`;
  const isRefused = undeliverable >= REFUSED_LEAST && undeliverable / mails > REFUSED_SHARE;
  return [
    ...(failed > 0 ? [{ weight, who: 'partners', what, of: 'MongoDB' } as const] : []),
    ...(isRefused ? [{ weight: 'warn', who: 'applicants', what: refused } as const] : []),
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
    return [{ weight: 'warn', who: 'partner', partner, what }];
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
