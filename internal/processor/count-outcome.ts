/** Counts a record's outcome. */
import type { SubmissionRecord } from '../submission/submission.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import type { PartnerLabels } from '../telemetry/partner-labels.ts';

export interface OutcomeTools extends Pick<ProcessorMetrics, 'outcomes' | 'partnerOutcomes'> {
  readonly partnerLabels: PartnerLabels;
}

export function countOutcome(
  { partnerId }: Pick<SubmissionRecord, 'partnerId'>,
  outcome: Parameters<ProcessorMetrics['outcomes']['inc']>[0],
  tools: OutcomeTools,
): void {
  tools.outcomes.inc(outcome);
  if (partnerId !== undefined)
    tools.partnerOutcomes.inc({ partner: tools.partnerLabels.of(partnerId), ...outcome });
}
