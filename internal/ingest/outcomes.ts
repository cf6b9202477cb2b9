/**
 * A partner's outcomes, in the order of their times (docs/decisions/0030).
 *
 * An outcome may become readable behind later ones: its write took long, or the clock of the
 * database stepped back. So the newest `REACH_MS` of what a cursor was given are compared with what
 * is there. If they differ, they are given again.
 */
import type { Owner } from '../fair/shares.ts';
import { ownerName } from '../partner/key-terms.ts';
import type { Loops } from '../platform/process/loop.ts';
import {
  isBehind,
  placeOf,
  serverMs,
  type OutcomeReader,
  type OutcomePlace,
  type Whose,
  type StatusRecord,
} from '../submission/status-reader.ts';
import { SHARED, STATUS_TIMEOUT_MS } from './bounds.ts';
import { FairReads } from './fair-reads.ts';
import { areGiven, cursorAt, type OutcomeCursor, REACH_MS, withGiven } from './outcome-cursor.ts';
import { WaitingClients } from './waiting-clients.ts';

/** A program that is behind has what it was given compared after as much more. */
const COMPARED_EVERY_MS = REACH_MS / 2;
/** So much of it is compared again, and of more outcomes a second less than `REACH_MS`. */
const KEPT_MOST = 4_000;
/** No cursor has more, so that all it was given can be compared. */
const GIVEN_MOST = 6_000;

const LOOK_EVERY_MS = 1_000;
const LOOKS_FAIL_AFTER_MS = 10_000;

interface OutcomesQuery {
  readonly whose: Whose;
  readonly cursor: OutcomeCursor;
}

interface OutcomesPage {
  readonly records: readonly StatusRecord[];
  readonly cursor: OutcomeCursor;
}

interface OutcomeWait {
  readonly whose: Whose;
  readonly place: OutcomePlace;
}

interface OutcomesTools {
  readonly reader: Pick<OutcomeReader, 'after' | 'marks' | 'news'>;
  /** Aborts when the process drains. */
  readonly drain: AbortSignal;
  readonly loops: Pick<Loops<'outcome_waits'>, 'start'>;
}

export class Outcomes {
  readonly #tools: OutcomesTools;
  readonly #reads: FairReads<OutcomesQuery, OutcomesPage>;
  readonly #waits: WaitingClients<OutcomeWait>;

  constructor(tools: OutcomesTools) {
    this.#tools = tools;
    this.#waits = new WaitingClients(tools.drain);
    this.#reads = new FairReads({
      max: SHARED.lookUps,
      together: 1,
      query: (queries, leftMs) => {
        const endsAt = performance.now() + serverMs(leftMs);
        return Promise.all(queries.map((query) => this.#page(query, endsAt)));
      },
    });
    tools.loops.start({
      name: 'outcome_waits',
      everyMs: LOOK_EVERY_MS,
      failsAfterMs: LOOKS_FAIL_AFTER_MS,
      run: () => this.#look(),
    });
  }

  /** Rejects if it cannot be read in time. */
  read(query: OutcomesQuery, owner: Owner, gone: AbortSignal): Promise<OutcomesPage> {
    return this.#reads.read(query, owner, gone);
  }

  /** Resolves once there is an outcome behind the cursor, or as `WaitingClients` says. */
  wait({ whose, cursor }: OutcomesQuery, owner: Owner, ms: number, gone: AbortSignal) {
    return this.#waits.hold({ whose, place: cursor.place }, owner, ms, gone);
  }

  /** Makes one query for all waits. */
  async #look(): Promise<void> {
    const waits = this.#waits.all;
    if (waits.length === 0) return;
    const byOwner = Map.groupBy(waits, ({ whose }) => nameOf(whose));
    const known = [...byOwner.values()].map((theirs) => ({
      ...theirs[0]!.whose,
      ms: Math.min(...theirs.map(({ place }) => place.ms)),
    }));
    for (const mark of await this.#tools.reader.news(known, serverMs(STATUS_TIMEOUT_MS)))
      for (const wait of byOwner.get(nameOf(mark)) ?? [])
        if (isBehind(placeOf(mark), wait.place)) this.#waits.end(wait, true);
  }

  async #page({ whose, cursor }: OutcomesQuery, endsAt: number): Promise<OutcomesPage> {
    const { reader } = this.#tools;
    const { records, place, more } = await reader.after(whose, cursor.place, endsAt);
    // Where an outcome of `place.ms` is readable, all before this time are.
    const settledMs = place.ms - REACH_MS;
    const isFew = cursor.count + records.length <= GIVEN_MOST;
    if (more && isFew && settledMs < cursor.givenMs + COMPARED_EVERY_MS)
      return { records, cursor: withGiven({ ...cursor, place }, records) };
    const { givenMs } = cursor;
    const marks = await reader.marks(whose, givenMs, cursor.place, GIVEN_MOST + 1, endsAt);
    // One came late, or has changed.
    if (!areGiven(cursor, marks)) return this.#page({ whose, cursor: cursorAt(givenMs) }, endsAt);
    const given = [...records.toReversed(), ...marks];
    const beyondMs = given[KEPT_MOST]?.stateAt.getTime() ?? -Infinity;
    const kept = { ...cursorAt(Math.max(givenMs, settledMs, beyondMs + 1)), place };
    return { records, cursor: withGiven(kept, given) };
  }
}

const nameOf = (whose: Partial<Whose>): string => ownerName(whose.partnerId ?? '', whose);
