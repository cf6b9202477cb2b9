/** Records as the door writes them, for tests of the store. */
import { createHash } from 'node:crypto';
import { Binary } from 'mongodb';
import { newId } from '../../internal/platform/ids.ts';
import { FIRST_DUE_MS, RECORD_SCHEMA, type SubmissionRecord } from '../../internal/submission/submission.ts';

/** A fresh accepted record with `text` as its body. */
export function newRecord(changes: Partial<SubmissionRecord> = {}, text = '{}'): SubmissionRecord {
  const body = Buffer.from(text);
  const receivedAt = new Date();
  return {
    _id: newId('req'),
    receivedAt,
    partnerId: 'demo',
    remoteIp: '127.0.0.1',
    body: new Binary(body),
    bodyBytes: body.length,
    bodySha256: createHash('sha256').update(body).digest('hex'),
    httpStatus: 202,
    schema: RECORD_SCHEMA,
    state: 'recorded',
    stateAt: receivedAt,
    version: 0,
    dueAt: new Date(receivedAt.getTime() + FIRST_DUE_MS),
    attempts: 0,
    history: [{ state: 'recorded', at: receivedAt, attempt: 0 }],
    ...changes,
  };
}
