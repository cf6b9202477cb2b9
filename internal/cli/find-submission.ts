/** Finds the request that an id names, and helps with a wrong id. */
import type { Account } from '../account/account.ts';
import { normalizeEmail } from '../application/identity.ts';
import { handOversOf } from '../mail/ledger.ts';
import { timeOfId } from '../platform/ids.ts';
import { duration } from '../platform/terminal.ts';
import { RECORD_SCHEMA, type SubmissionRecord } from '../submission/submission.ts';
import { CommandError, type Desk } from './command.ts';
import { SUGGEST_FROM_LENGTH, SUGGESTIONS } from './limits.ts';
import { utc } from './timeline.ts';

/** A request; or, past its retention, what its account still tells of it. */
export interface FoundSubmission extends SubmissionRecord {
  readonly pastRetention?: true;
}

/**
 * The request that `id` names: its own id, its reference number, or its account's id. Throws
 * `CommandError` that says what to try instead.
 */
export async function submissionById(id: string, desk: Desk, now: Date): Promise<FoundSubmission> {
  if (id.startsWith('acc_')) {
    const account = await desk.accounts.find('_id', id);
    if (account === undefined) throw new CommandError(`there is no account ${id}`);
    return (await desk.submissions.byId(account.requestId)) ?? fromAccount(account);
  }
  const found = await desk.submissions.byId(id);
  if (found !== undefined) return found;
  const account = await desk.accounts.find('requestId', id);
  if (account !== undefined) return fromAccount(account);
  if (REFERENCE.test(id)) {
    const start = `req_${lettersOf(id)}`;
    const named = [
      ...new Set([
        ...(await desk.submissions.idsFrom(start, 2)),
        ...(await desk.accounts.requestIdsFrom(start, 2)),
      ]),
    ];
    if (named.length === 1 && named[0] !== undefined) return submissionById(named[0], desk, now);
  }
  throw new CommandError(`there is no request ${id}: ${await advice(id, desk, now)}`);
}

/** As the e-mail to the applicant has it. */
const REFERENCE = /^[0-9a-z]{4}(?:-[0-9a-z]{4}){3}$/i;

function lettersOf(id: string): string {
  return (
    id
      .toLowerCase()
      .replace(/^.*req[_-]/, '')
      .replace(/[^0-9a-z]/g, '')
      // The alphabet of the ids (Crockford's base32) has no i, l, o and u, because they are
      // misread.
      .replace(/o/g, '0')
      .replace(/[il]/g, '1')
      .slice(0, 26)
  );
}

/**
 * Stands in for the record that is gone. A record made of it must not mail under a claim that the
 * ledger has already.
 */
function fromAccount(account: Account): FoundSubmission {
  const { email, ein, businessName } = account.released ?? account;
  return {
    _id: account.requestId,
    receivedAt: account.createdAt,
    partnerId: account.partnerId,
    remoteIp: '',
    bodyBytes: 0,
    httpStatus: 202,
    schema: RECORD_SCHEMA,
    state: account.notifiedAt === undefined ? 'undeliverable' : 'completed',
    stateAt: account.notifiedAt ?? account.createdAt,
    version: Math.max(0, ...handOversOf(account.mail).map(({ claim }) => claim)) + 1,
    attempts: 0,
    history: [],
    accountId: account._id,
    applicant: { email: normalizeEmail(email), ein, businessName },
    pastRetention: true,
  };
}

/** What may be meant by an id that is not there. */
async function advice(id: string, desk: Desk, now: Date): Promise<string> {
  const near = await similarIds(id, desk);
  if (near.length > 0) return `did you mean ${near.join(' or ')}?`;
  const counted = await desk.submissions.countedStatus(id);
  if (counted === 429)
    return 'it was over the rate limit and answered 429, which is counted but not recorded';
  if (counted !== undefined)
    return `it was one of many answered ${counted}, which are counted but not recorded`;
  const madeAt = id.startsWith('req_') ? timeOfId(id) : undefined;
  if (madeAt === undefined) {
    return 'a request_id is req_ and 26 letters and digits; try find --email, --ein or --partner';
  }
  const age = now.getTime() - madeAt.getTime();
  if (age < 0) return `its time is ${utc(madeAt)} UTC, which has not come yet; is it copied right?`;
  return `it was given out ${utc(madeAt)} UTC, ${duration(age)} ago: answered 500, dropped in a flood of invalid keys, or past its retention`;
}

/**
 * Ids as they are often mistyped: in capitals, without the prefix, o for 0 and l for 1, cut off,
 * with a word around.
 */
async function similarIds(id: string, { submissions }: Desk): Promise<string[]> {
  const start = `req_${lettersOf(id)}`;
  if (start.length < SUGGEST_FROM_LENGTH) return [];
  const exact = await submissions.idsFrom(start, SUGGESTIONS);
  // A wrong letter near the end leaves the beginning, which holds the time: few others share it.
  return exact.length > 0
    ? exact
    : submissions.idsFrom(
        start.slice(0, Math.max(SUGGEST_FROM_LENGTH, start.length - 6)),
        SUGGESTIONS,
      );
}
