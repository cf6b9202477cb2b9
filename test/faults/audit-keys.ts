/**
 * The part of the audit about idempotency keys: one live record and one request_id for each, and a
 * 422 only for a second body.
 */
import type { AuditView } from './audit.ts';
import { userAgentOf } from './ledger.ts';

export function checkKeys(view: AuditView): void {
  const byAgent = Map.groupBy(view.records, (record) => record.userAgent);
  const keyed = view.ledger.filter((entry) => entry.idempotencyKey !== undefined);
  for (const [key = '', entries] of Map.groupBy(keyed, (entry) => entry.idempotencyKey)) {
    const phase = entries[0]!.phase;
    const counts = view.counts(phase);
    counts.keys += 1;
    counts.keyed += entries.length;
    const live = entries
      .flatMap(({ n }) => byAgent.get(userAgentOf(n)) ?? [])
      .filter(({ state }) => state !== 'withdrawn' && state !== 'malformed');
    if (live.length > 1) {
      view.violation(
        'doubled_key',
        phase,
        key,
        `has the live records ${live.map(({ _id }) => _id).join(', ')}`,
      );
    }
    const accepted = entries.filter(({ answer }) => answer?.status === 202);
    const ids = new Set(accepted.map(({ answer }) => answer?.requestId));
    if (ids.size > 1)
      view.violation('doubled_key', phase, key, `was answered 202 with ${[...ids].join(', ')}`);
    if (accepted.some(({ body }) => !body.equals(accepted[0]!.body))) {
      view.violation('doubled_key', phase, key, 'was answered 202 for two bodies');
    }
    for (const { answer, body } of entries) {
      if (answer?.status !== 422) continue;
      // The first one may be withdrawn by now, but its request was one of this key.
      const first = view.byId.get(answer.requestId ?? '');
      const other = entries.find(
        ({ n, body: sent }) => !sent.equals(body) && first?.userAgent === userAgentOf(n),
      );
      if (other === undefined && first?.state !== 'withdrawn') {
        view.violation(
          'wrong_answer',
          phase,
          key,
          `a 422 names ${answer.requestId}, which is no other body of this key`,
        );
      }
    }
  }
}
