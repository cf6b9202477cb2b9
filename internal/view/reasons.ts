/** Why a request is where it is, and faults of our own in words instead of a library's codes. */
import { WITH_ERROR } from '../submission/support-queries.ts';
import type { SubmissionRecord } from '../submission/submission.ts';

const CAUSES: Readonly<Record<string, string>> = {
  EAUTH: 'the relay refuses our login',
  ECONNECTION: 'the relay cannot be reached',
  ECONNREFUSED: 'the relay cannot be reached',
  ESOCKET: 'the relay cannot be reached',
  EDNS: 'the name of the relay is not found',
  ETIMEDOUT: 'the relay does not answer in time',
  ETLS: 'TLS cannot be agreed on with the relay',
  EPROTOCOL: 'the relay answers with an error',
};

/** `EAUTH AUTH PLAIN 535` → `the relay refuses our login (EAUTH AUTH PLAIN 535)`. */
export function causeInWords(cause: string | undefined): string {
  const [code = ''] = cause?.split(' ') ?? [];
  return `${CAUSES[code] ?? 'the relay could not be used'}${cause === undefined ? '' : ` (${cause})`}`;
}

/** Processors store the cause behind these words. */
const UNUSABLE = /^the mail server could not be used \(([^)]*)\)$/;

export function errorInWords(stored: string): string {
  const cause = UNUSABLE.exec(stored)?.[1];
  return cause === undefined ? stored : causeInWords(cause);
}

export function errorOf({
  state,
  lastError,
}: Pick<SubmissionRecord, 'state' | 'lastError'>): string | undefined {
  return WITH_ERROR.includes(state) && lastError !== undefined
    ? errorInWords(lastError)
    : undefined;
}
