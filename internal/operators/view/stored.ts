/** What Now and `partner-ingest status` read of the database. */
import type { KeptFindings } from '../../partner/kept-findings.ts';
import { later, type Clock } from '../../platform/process/clock.ts';
import { whereAside } from '../../self-audit/walk.ts';
import { TURNED_AWAY } from '../../submission/support-queries.ts';
import { LIMITED_MS } from './activity.ts';
import { partnersView } from './partners.ts';
import type { Reads } from './reads.ts';
import { deadLettersView } from './search.ts';
import { nowTraffic } from './traffic.ts';
import { COUNTED_WITHIN_MS } from './turned-away.ts';

/** Limits this read, so that it costs ingest little. */
const RECORDED_WITHIN_MS = 500;

export async function readStored({
  reads,
  kept,
  clock,
}: {
  readonly reads: Omit<Reads, 'trail' | 'accountRequestsKeptMs'>;
  readonly kept: KeptFindings;
  readonly clock: Clock;
}) {
  const problems = reads.keys.problems.list();
  const at = clock.now();
  const since = later(at, -LIMITED_MS);
  const [partners, dead, secrets, { found: findings }, { putAside }, away, recorded, traffic] =
    await Promise.all([
      partnersView(reads, at, problems),
      deadLettersView(reads, at, COUNTED_WITHIN_MS),
      problems,
      kept.read(),
      whereAside({ ...reads, accountRequestsKeptMs: Infinity }, clock),
      reads.submissions.turnedAwaySince(since, at),
      reads.submissions.kinds({
        states: TURNED_AWAY,
        since,
        until: at,
        withinMs: RECORDED_WITHIN_MS,
      }),
      nowTraffic(reads.traffic, at),
    ]);
  const from = away.from > recorded.from ? away.from : recorded.from;
  const turnedAway = { counts: away.counts, recorded: recorded.groups, from };
  return { partners, dead, secrets, findings, putAside, turnedAway, traffic, at };
}
