/** Finding requests: by id with help for a wrong one, by filters, and all of them page by page. Every read is bounded. */
import type { Collection, Document, Filter } from 'mongodb';
import { firstIdAt, timeOfId } from '../platform/ids.ts';
import { duration } from '../platform/terminal.ts';
import { isOpen, type State } from '../submission/states.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import type { Desk } from './command.ts';
import { RefusedError } from './refused.ts';
import type { Values } from './options.ts';
import { READ_DEADLINE_MS, SUGGEST_FROM_LENGTH, SUGGESTIONS } from './limits.ts';
import { utc } from './timeline.ts';
import { withoutBody } from './view.ts';

/** The request that `id` names: its own id, or its account's. Throws `RefusedError` that says what to try instead. */
export async function requestById(id: string, desk: Desk, now: Date): Promise<SubmissionRecord> {
  if (id.startsWith('acc_')) {
    const account = await desk.accounts.findOne({ _id: id }, { maxTimeMS: READ_DEADLINE_MS });
    if (account === null) throw new RefusedError(`there is no account ${id}`);
    return requestById(account.requestId, desk, now);
  }
  const found = await desk.requests.findOne({ _id: id }, { maxTimeMS: READ_DEADLINE_MS });
  if (found !== null) return found;
  throw new RefusedError(`there is no request ${id}: ${await advice(id, desk, now)}`);
}

/** What may be meant by an id that is not there. */
async function advice(id: string, desk: Desk, now: Date): Promise<string> {
  const near = await similarIds(id, desk.requests);
  if (near.length > 0) return `did you mean ${near.join(' or ')}?`;
  const limited = await desk.rateLimited.findOne({ requestIds: id }, { maxTimeMS: READ_DEADLINE_MS });
  if (limited !== null) return 'it was over the rate limit and answered 429, which is counted but not recorded';
  const madeAt = id.startsWith('req_') ? timeOfId(id) : undefined;
  if (madeAt === undefined) {
    return 'a request_id is req_ and 26 letters and digits; try find --email, --ein or --partner';
  }
  const age = now.getTime() - madeAt.getTime();
  if (age < 0) return `its time is ${utc(madeAt)} UTC, which has not come yet; is it copied right?`;
  return `it was given out ${utc(madeAt)} UTC, ${duration(age)} ago: answered 500, refused in a flood, or past its retention`;
}

/** Ids as they are often mistyped: in capitals, without the prefix, o for 0 and l for 1, cut off, with a word around. */
async function similarIds(id: string, requests: Collection<SubmissionRecord>): Promise<string[]> {
  const letters = id
    .toLowerCase()
    .replace(/^.*req[_-]/, '')
    .replace(/[^0-9a-z]/g, '')
    // The alphabet of the ids (Crockford's base32) has no i, l, o and u, because they are misread.
    .replace(/o/g, '0')
    .replace(/[il]/g, '1')
    .slice(0, 26);
  const start = `req_${letters}`;
  if (start.length < SUGGEST_FROM_LENGTH) return [];
  const idsFrom = (prefix: string): Promise<string[]> =>
    requests
      .find({ _id: { $gte: prefix, $lt: `${prefix}~` } }, { projection: { _id: 1 } })
      .limit(SUGGESTIONS)
      .maxTimeMS(READ_DEADLINE_MS)
      .map((record) => record._id)
      .toArray();
  const exact = await idsFrom(start);
  // A wrong letter near the end leaves the beginning, which holds the time: few others share it.
  return exact.length > 0 ? exact : idsFrom(start.slice(0, Math.max(SUGGEST_FROM_LENGTH, start.length - 6)));
}

/** The filter for what a command line asks for; e-mail and EIN are those of the applicant. */
export function filterOf(values: Values): Filter<SubmissionRecord> {
  const { email, ein, partner, state, since, until } = values;
  return {
    ...(email === undefined ? {} : { 'applicant.email': email }),
    ...(ein === undefined ? {} : { 'applicant.ein': ein }),
    ...(partner === undefined ? {} : { partnerId: partner }),
    ...(state === undefined ? {} : stateFilter(state)),
    ...idRange(since, until),
  };
}

/** With `dueAt`, open states are found by the index of what is due. */
function stateFilter(state: State): Filter<SubmissionRecord> {
  return isOpen(state) ? { state, dueAt: { $exists: true } } : { state };
}

/** Ids begin with their time, so a span of time is a range of ids. */
function idRange(since: Date | undefined, until: Date | undefined): Filter<SubmissionRecord> {
  if (since === undefined && until === undefined) return {};
  return {
    _id: {
      ...(since === undefined ? {} : { $gte: firstIdAt('req', since) }),
      ...(until === undefined ? {} : { $lt: firstIdAt('req', until) }),
    },
  };
}

/** At most `limit` records that match, newest first, without their bodies. */
export async function newestMatching(
  requests: Collection<SubmissionRecord>,
  filter: Filter<SubmissionRecord>,
  limit: number,
): Promise<SubmissionRecord[]> {
  return requests
    .find(filter, { projection: withoutBody })
    .sort({ _id: -1 })
    .limit(limit)
    .maxTimeMS(READ_DEADLINE_MS)
    .toArray();
}

/**
 * All documents that match, oldest first, a page at a time: memory holds one page however many there are, and each read
 * begins where the last one ended, so a walk of hours keeps nothing open on the server.
 */
export async function* pagesOf<Kept extends { readonly _id: string }>(
  collection: Collection<Kept>,
  filter: Filter<Kept>,
  options: { readonly size: number; readonly projection?: Document },
): AsyncGenerator<Kept[]> {
  let after: string | undefined;
  for (;;) {
    const beyond = after === undefined ? {} : { _id: { $gt: after } };
    const page = (await collection
      .find(
        { $and: [filter, beyond] } as Filter<Kept>,
        options.projection === undefined ? {} : { projection: options.projection },
      )
      .sort({ _id: 1 })
      .limit(options.size)
      .maxTimeMS(READ_DEADLINE_MS)
      .toArray()) as Kept[];
    if (page.length > 0) yield page;
    if (page.length < options.size) return;
    after = page.at(-1)?._id;
  }
}
