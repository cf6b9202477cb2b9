/** A partner's program that follows its outcomes during the faults, as docs/contract.md says. */
import { OUTCOMES_PATH } from '../../internal/ingest/contract.ts';
import { pause } from '../../internal/platform/process/deadline.ts';
import { send } from '../support/http.ts';
import type { Target } from './load.ts';

interface FollowerOptions {
  readonly key: string;
  readonly targets: () => readonly Target[];
}

export interface Follower {
  /** The state that came last of each request. */
  readonly states: ReadonlyMap<string, string>;
  /** Answers that the contract does not allow. */
  readonly troubles: readonly string[];
  /** Asks until nothing more comes, or no answer for two minutes. */
  catchUp(): Promise<void>;
  stop(): Promise<void>;
}

/** Longer than a frozen process needs to answer. */
const ASK_TIMEOUT_MS = 75_000;
const CATCH_UP_MS = 120_000;
const WAIT_SECONDS = 2;
/** After each answer, so that pages have more than one outcome. */
const AGAIN_MS = 200;

interface Page {
  readonly data: {
    readonly outcomes: readonly { readonly request_id: string; readonly state: string }[];
    readonly next_cursor: string;
  };
}

export function startFollower({ key, targets }: FollowerOptions): Follower {
  const states = new Map<string, string>();
  const troubles: string[] = [];
  const stop = new AbortController();
  let [cursor, turn] = ['', 0];
  /** Empty answers in a row, and the time of the last answer. */
  const ended = { empties: 0, answeredAt: 0 };

  const ask = async (): Promise<void> => {
    const all = targets();
    const target = all[(turn += 1) % Math.max(1, all.length)];
    if (target === undefined) return pause(AGAIN_MS, stop.signal);
    const query = cursor === '' ? '' : `?cursor=${cursor}`;
    try {
      const answer = await send(target.url, {
        method: 'GET',
        path: OUTCOMES_PATH + query,
        key,
        headers: { prefer: `wait=${WAIT_SECONDS}` },
        signal: AbortSignal.any([stop.signal, AbortSignal.timeout(ASK_TIMEOUT_MS)]),
      });
      if (answer.status === 200) {
        const { outcomes, next_cursor: next } = (answer.json as Page).data;
        for (const { request_id: id, state } of outcomes) states.set(id, state);
        ended.empties = outcomes.length === 0 ? ended.empties + 1 : 0;
        ended.answeredAt = performance.now();
        cursor = next;
        return pause(AGAIN_MS, stop.signal);
      }
      if (answer.status !== 503 && answer.status !== 429)
        troubles.push(`outcomes were answered ${answer.status}: ${answer.text.slice(0, 100)}`);
    } catch {
      // Its process was killed or hangs.
    }
    await pause(AGAIN_MS, stop.signal);
  };
  const following = (async () => {
    while (!stop.signal.aborted) await ask();
  })();

  return {
    states,
    troubles,
    async catchUp() {
      // What was asked before the last outcome may still be answered.
      [ended.empties, ended.answeredAt] = [0, performance.now()];
      while (ended.empties < 2 && performance.now() < ended.answeredAt + CATCH_UP_MS)
        await pause(AGAIN_MS, stop.signal);
    },
    async stop() {
      stop.abort();
      await following;
    },
  };
}
