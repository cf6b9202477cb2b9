/** Finds the request that an id or an address names, or explains why it is missing. */
import type { Account } from '../../account/account.ts';
import { isEmailAddress, normalizedApplicant, normalizeEmail } from '../../application/fields.ts';
import { handOversOf } from '../../account/mail-ledger.ts';
import { timeOfId } from '../../platform/stores/ids.ts';
import { tookTooLong } from '../../platform/stores/mongo-read.ts';
import { duration } from './terminal.ts';
import type { State } from '../../submission/states.ts';
import { RECORD_SCHEMA, type SubmissionRecord } from '../../submission/submission.ts';
import type { TurnedAwayCount } from '../../submission/support-queries.ts';
import { idIn } from './read-as.ts';
import type { Reads } from './reads.ts';
import { utc } from './words.ts';

/** `pastRetention`: the record has expired; this is built from the account. */
export interface FoundSubmission extends SubmissionRecord {
  readonly pastRetention?: true;
}

/** Says what is known of the id. */
export interface Missing {
  readonly missing: string;
}

type Stores = Pick<Reads, 'submissions' | 'accounts'>;

/** `text` is the id of a request or its account, or its beginning, as an e-mail's reference. */
export async function lookUp(
  text: string,
  { submissions, accounts }: Stores,
  now: Date,
): Promise<FoundSubmission | Missing> {
  const { id: start = text } = idIn(text, now);
  const named = start === text ? [] : await idsFrom(start, { submissions, accounts }, 2);
  const [id = start] = named.length === 1 ? named : [];
  if (id.startsWith('acc_')) {
    const account = await accounts.find('_id', id);
    if (account === undefined) return { missing: `there is no account ${id}` };
    return (await submissions.byId(account.requestId)) ?? fromAccount(account);
  }
  const found = await submissions.byId(id);
  if (found !== undefined) return found;
  const account = await accounts.find('requestId', id);
  if (account !== undefined) return fromAccount(account);
  const known = await knownOf(id, submissions, now);
  return { missing: `there is no request ${text}: ${known}` };
}

/** The first ids of requests or accounts that begin so, also of requests past their retention. */
export async function idsFrom(
  start: string,
  { submissions, accounts }: Stores,
  limit: number,
): Promise<readonly string[]> {
  if (start.startsWith('acc_')) return accounts.idsFrom('_id', start, limit);
  const found = await Promise.all([
    submissions.idsFrom(start, limit),
    accounts.idsFrom('requestId', start, limit),
  ]);
  return [...new Set(found.flat())].toSorted().slice(0, limit);
}

export function isEmail(name: string): boolean {
  return isEmailAddress(name.trim());
}

/** The request whose account has the address, else the newest one that named it. */
export async function lookUpEmail(
  address: string,
  { submissions, accounts }: Stores,
): Promise<FoundSubmission | Missing> {
  const email = normalizeEmail(address);
  const account = await accounts.find('emailNormalized', email);
  if (account !== undefined)
    return (await submissions.byId(account.requestId)) ?? fromAccount(account);
  const [newest] = await submissions.newest({ email }, 1);
  return (
    (newest && (await submissions.byId(newest._id))) ?? {
      missing: 'there is no request of this address',
    }
  );
}

/** Stands for the expired record. Its version must be above every claim in the ledger. */
function fromAccount(account: Account): FoundSubmission {
  return {
    _id: account.requestId,
    receivedAt: account.createdAt,
    partnerId: account.partnerId,
    remoteIp: '',
    bodyBytes: 0,
    httpStatus: 202,
    schema: RECORD_SCHEMA,
    state: pastState(account),
    stateAt: account.notifiedAt ?? account.createdAt,
    version: Math.max(0, ...handOversOf(account.mail).map(({ claim }) => claim)) + 1,
    attempts: 0,
    history: [],
    accountId: account._id,
    applicant: normalizedApplicant(account.released ?? account),
    pastRetention: true,
  };
}

async function knownOf(id: string, submissions: Stores['submissions'], now: Date): Promise<string> {
  const madeAt = id.startsWith('req_') ? timeOfId(id) : undefined;
  if (madeAt === undefined) {
    return 'an id is req_ and 26 lower-case letters and digits, a reference number is 16 of them; else search by e-mail address, EIN or partner';
  }
  const age = now.getTime() - madeAt.getTime();
  if (age < 0) return `its time is ${utc(madeAt)} UTC, which has not come yet; is it copied right?`;
  const given = `it was given out ${utc(madeAt)} UTC, ${duration(age)} ago`;
  const counted = await submissions.turnedAway(id, madeAt).catch((error: unknown) => {
    if (!tookTooLong(error)) throw error;
  });
  if (counted === undefined)
    return `${given}: ${UNRECORDED}; the many requests counted as turned away could not be searched`;
  const { named, unnamed } = counted;
  if (named !== undefined) return turnedAwayInWords(named);
  if (unnamed.length === 0) return `${given}: ${UNRECORDED}`;
  const many = unnamed
    .map(({ count, status, limits }) =>
      [`${count} answered ${status}`, limits.join(', ')].filter((words) => words !== '').join(': '),
    )
    .join(' or ');
  return `${given}: perhaps one of ${many} in that minute, which are counted but not recorded; else ${UNRECORDED}`;
}

/** Example: "answered 429: 300 a minute of this address; not recorded". */
function turnedAwayInWords({ status, limits = [], address, partnerId, keyId }: TurnedAwayCount) {
  const why = status === undefined ? limits.join(', ') || 'over a limit' : 'in a flood of such';
  const who = keyId === undefined ? 'no known key' : `key ${keyId} of partner ${partnerId}`;
  return `answered ${status ?? 429}: ${why}; not recorded, only counted: ${who} at ${address}`;
}

/** Why an id may have no record and no count; a count may be lost or expired. */
const UNRECORDED = 'answered 429 or 500, dropped in a flood of invalid keys, or past its retention';

function pastState({ closedAt, notifiedAt }: Account): State {
  if (closedAt !== undefined) return 'closed';
  return notifiedAt === undefined ? 'undeliverable' : 'completed';
}
