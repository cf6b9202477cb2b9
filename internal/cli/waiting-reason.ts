/** What a request still waits for after an operator has made it due. */
import type { SubmissionRecord } from '../submission/submission.ts';
import { CommandError, type Desk } from './command.ts';

/** `waits_for` is for programs. */
export async function whenDue(
  { partnerId }: Pick<SubmissionRecord, 'partnerId'>,
  desk: Pick<Desk, 'holds'>,
): Promise<{ readonly text: string; readonly json: { readonly waits_for?: string } }> {
  if (partnerId === undefined || !(await desk.holds.isSet(partnerId)))
    return { text: 'it is due now, and a processor takes it by itself', json: {} };
  return {
    text: `it waits: ${partnerId} is on hold until "partner release ${partnerId}"`,
    json: { waits_for: `partner ${partnerId} is on hold` },
  };
}

/** A worker or another operator was faster. */
export function changedMeanwhile(record: Pick<SubmissionRecord, '_id'>): CommandError {
  return new CommandError(
    `${record._id} changed meanwhile: look at it with "show" and decide again`,
  );
}
