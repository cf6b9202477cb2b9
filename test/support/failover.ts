/**
 * Load on a service while its Redis fails over: what partners were answered, and what became of
 * each application.
 */
import { expect } from '@jest/globals';
import { send } from './http.ts';
import { eventually } from './wait.ts';
import { newApplication, requestIdOf, type World } from './world.ts';

/** Five a second. */
const BETWEEN_SUBMISSIONS_MS = 200;
/** A scrape takes both processes some milliseconds; a limiter that flips does so once a second. */
const BETWEEN_LOOKS_MS = 250;
/**
 * What lost its hint: first look after 15 s, grace of 15 s, two rounds of reconcile; twice that for
 * a busy machine.
 */
const SETTLED_WITHIN_MS = 75_000;
/** Answers of the contract to a valid application. */
const ANSWERS = [202, 429, 500];

export interface Settled {
  /** How many got each status; `none` is no answer. */
  readonly answers: Readonly<Record<string, number>>;
  /** How often the limiter was seen to change between Redis and the process's own memory. */
  readonly flips: number;
  /** Longest from the receipt to the e-mail, in seconds, of what was received since. */
  readonly slowest: (since?: Date) => number;
}

export interface FailoverLoad {
  /** Sent so far. */
  readonly sent: number;
  /**
   * Stops sending, waits until each accepted application is completed, and holds what partners are
   * promised.
   */
  readonly settle: () => Promise<Settled>;
}

/** Submits to `ingest` each `everyMs`, and watches its limiter and the liveness of `processor`. */
export function startFailoverLoad(
  world: World,
  {
    ingest,
    processor,
  }: Readonly<Record<'ingest' | 'processor', { readonly url: string; readonly adminUrl: string }>>,
  everyMs = BETWEEN_SUBMISSIONS_MS,
): FailoverLoad {
  const answers: Record<string, number> = {};
  const accepted: { readonly id: string; readonly email: string }[] = [];
  const complaints: string[] = [];
  const pending = new Set<Promise<void>>();
  let [sent, flips, fallback] = [0, 0, 0];
  const keep = (work: Promise<void>): void => {
    pending.add(work);
    void work.finally(() => pending.delete(work));
  };
  const submitOne = async (): Promise<void> => {
    const fields = newApplication();
    sent += 1;
    const answer = await send(ingest.url, { key: world.key, body: JSON.stringify(fields) }).catch(
      () => undefined,
    );
    const status = answer?.status ?? 'none';
    answers[status] = (answers[status] ?? 0) + 1;
    if (answer?.status === 202) accepted.push({ id: requestIdOf(answer), email: fields.email });
  };
  const look = async (): Promise<void> => {
    const now = await world.metric(ingest, 'partner_ingest_limiter_fallback');
    if (now !== fallback) flips += 1;
    fallback = now;
    const live = await fetch(`${processor.adminUrl}/livez`);
    if (!live.ok) complaints.push(await live.text());
  };
  const timers = [
    setInterval(() => keep(submitOne()), everyMs),
    setInterval(
      () => keep(look().catch((error: unknown) => void complaints.push(String(error)))),
      BETWEEN_LOOKS_MS,
    ),
  ];
  return {
    get sent() {
      return sent;
    },
    settle: async () => {
      for (const timer of timers) clearInterval(timer);
      await Promise.all(pending);
      const ids = accepted.map(({ id }) => id);
      const completed = await eventually(
        'all accepted applications to be completed',
        async () => {
          const records = await world.records({ _id: { $in: ids }, state: 'completed' });
          return records.length === ids.length && records;
        },
        SETTLED_WITHIN_MS,
      );
      expect(Object.keys(answers).filter((status) => !ANSWERS.includes(Number(status)))).toEqual(
        [],
      );
      expect(complaints).toEqual([]);
      expect(accepted.filter(({ email }) => world.mail.mailsTo(email).length !== 1)).toEqual([]);
      return {
        answers,
        flips,
        slowest: (since = new Date(0)) =>
          Math.max(
            ...completed.flatMap(({ receivedAt, stateAt }) =>
              receivedAt < since ? [] : [(stateAt.getTime() - receivedAt.getTime()) / 1_000],
            ),
          ),
      };
    },
  };
}
