/** A simulated door: what submit-application.ts does to a record, without HTTP around it. */
import { hintFor } from '../../internal/queue/job.ts';
import { GroupCommit } from '../../internal/submission/group-commit.ts';
import { groupCommitLimits } from '../../internal/submission/limits.ts';
import { FIRST_DUE_MS } from '../../internal/submission/submission.ts';
import { Withdrawals } from '../../internal/submission/withdrawals.ts';
import { newRecord } from '../support/records.ts';
import type { SimProcess } from './scheduler.ts';
import { noMetrics, silent, type Sent, type World } from './world.ts';

/** ACCEPT_TIMEOUT_MS. */
const ACCEPT_MS = 2_000;

export interface Door {
  readonly process: SimProcess;
  submit(fields: { readonly email: string; readonly ein: string; readonly valid: boolean }): void;
}

export function startDoor(world: World, process: SimProcess): Door {
  const { scheduler, parts } = world;
  const writing = world.connect(process, 'door', ACCEPT_MS);
  const { clock } = writing;
  const metrics = noMetrics as never;
  const group = new GroupCommit({
    collection: writing.requests,
    limits: groupCommitLimits,
    timeoutMs: ACCEPT_MS,
    clock,
    metrics,
  });
  const withdrawals = new Withdrawals({
    collection: world.connect(process, 'door').requests,
    retentionDays: 7,
    clock,
    log: silent,
    metrics,
  });

  const submit: Door['submit'] = (fields) => {
    const receivedAt = clock.now();
    const body = { email: fields.email, business_name: 'Any', ein: fields.valid ? fields.ein : 'none' };
    const record = newRecord(
      {
        _id: `req_${world.sent.length}`,
        receivedAt,
        stateAt: receivedAt,
        dueAt: new Date(receivedAt.getTime() + FIRST_DUE_MS),
        history: [{ state: 'recorded', at: receivedAt, attempt: 0 }],
      },
      JSON.stringify(body),
    );
    const sent: Sent = {
      requestId: record._id,
      sha256: record.bodySha256!,
      door: process,
      at: scheduler.now,
      answer: undefined,
      ...fields,
    };
    world.sent.push(sent);
    void group.record(record).then(async (result) => {
      if (result === 'stored') {
        sent.answer = 202;
        await world.queue.send('applications', [hintFor(record)]).catch(() => {});
        return;
      }
      if (result === 'in_doubt') {
        if (parts.withdraws) withdrawals.add(record);
        // As the door does: too late to be sure of the withdrawal means no answer.
        if (clock.now().getTime() - receivedAt.getTime() >= FIRST_DUE_MS) return;
        sent.answer = parts.answersDoubtWith;
        return;
      }
      sent.answer = 500;
    });
  };
  return { process, submit: (fields) => scheduler.after(0, () => submit(fields), process) };
}
