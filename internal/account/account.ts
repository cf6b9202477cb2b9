/**
 * An applicant's account, unique by e-mail address, EIN and request; a test's address and EIN are
 * unique only among its partner's tests.
 */
import type { Db } from 'mongodb';
import type { Application } from '../application/fields.ts';
import type { Holder } from '../application/reasons.ts';
import { type Mode, TESTS_KEPT_SECONDS } from '../partner/key-terms.ts';
import type { IndexDefinition } from '../platform/stores/mongo-indexes.ts';

export const ACCOUNTS = 'accounts';
export const TEST_ACCOUNTS = 'test_accounts';

export const accountCollection = (db: Db, { test }: Mode = {}) =>
  test ? db.collection<Account>(TEST_ACCOUNTS) : db.collection<Account>(ACCOUNTS);

/** E-mails go to `email`, the address as the partner sent it. */
export interface Account extends Application {
  readonly _id: string;
  readonly emailNormalized: string;
  readonly requestId: string;
  readonly partnerId: string;
  readonly createdAt: Date;
  /** A test whose EIN has no fixed ending: it is checked for duplicates like a live account. */
  readonly judged?: true;
  /** The login application reads this and sets `usedAt` (docs/login.md). */
  readonly activation?: Activation;
  readonly notifiedAt?: Date;
  readonly mail?: MailLedger;
  /** Counts further e-mails: each has its own Message-ID, or servers may drop it. */
  readonly mailVersion?: number;
  /** Counts corrections and closings; each voids earlier links. */
  readonly linkVersion?: number;
  /**
   * From then on `emailNormalized` and all fields of the application hold `released:<account id>`.
   */
  readonly releasedAt?: Date;
  /** When the request was closed; unused links are void. */
  readonly closedAt?: Date;
  /** Only an `ErasedPlace` has it. */
  readonly erasedAt?: Date;
  /** The former fields, kept as long as a completed request. */
  readonly released?: Application;
}

const uniqueFields = [
  ['email', 'emailNormalized'],
  ['ein', 'ein'],
] as const;

type Keys = Pick<Account, 'emailNormalized' | 'ein' | 'partnerId' | 'requestId'>;

/** Which of these accounts has the address or the EIN that the applicant's account would have. */
export function holdersOf(
  applicant: Omit<Keys, 'requestId'>,
  accounts: readonly Keys[],
): readonly Holder[] {
  return uniqueFields.flatMap(([field, key]) => {
    const holder = accounts.find((other) => other[key] === applicant[key]);
    if (holder === undefined) return [];
    const { requestId, partnerId } = holder;
    return [{ field, requestId, samePartner: partnerId === applicant.partnerId }];
  });
}

export interface Activation {
  /** SHA-256 in hex. */
  readonly tokenHash: string;
  readonly expiresAt: Date;
  /** The id of the key, if `LINK_SECRET` has ids. */
  readonly keyId?: string;
  readonly usedAt?: Date;
}

/**
 * Stored before a hand-over. If no result follows, the process died, froze or lost the database,
 * and the e-mail may be sent.
 */
export interface Intent {
  readonly claim: number;
  readonly startedAt: Date;
  readonly attempt: number;
  readonly host: string;
}

/** Where a hand-over ended; at `mail`, `rcpt` and `data`, the relay refused that command. */
export type Phase = 'connect' | 'session' | 'mail' | 'rcpt' | 'data' | 'content' | 'answered';

export interface MailOutcome {
  readonly result: 'accepted' | 'refused' | 'unreachable' | 'ambiguous' | 'aborted';
  readonly phase?: Phase;
  /** The SMTP reply code; `enhancedCode` is that of RFC 3463. */
  readonly code?: number;
  readonly enhancedCode?: string;
  /** The error in words, such as nodemailer's `ETIMEDOUT CONN`. */
  readonly cause?: string;
  /** The relay's reply, for people, without the applicant's address. */
  readonly answer?: string;
}

export type MailHandOver = Intent & Partial<MailOutcome & { readonly endedAt: Date }>;

export interface MailLedger {
  readonly begun: number;
  /** E-mails that may have arrived. */
  readonly possible: number;
  /** With more `possible`, one may have arrived that nobody ordered; see `orderedMails`. */
  readonly ordered?: number;
  /** The keys are the hand-overs' claims. */
  readonly handOvers: Readonly<Record<string, MailHandOver>>;
}

/** How many e-mails may have arrived without one that nobody ordered. */
export function orderedMails({ mail, mailVersion = 0 }: Pick<Account, 'mail' | 'mailVersion'>) {
  // An older version counted orders in `mailVersion` alone.
  return mail?.ordered ?? 1 + mailVersion;
}

export function linkState(
  { activation }: Pick<Account, 'activation'>,
  now: Date,
): 'none' | 'open' | 'expired' | 'used' {
  if (activation === undefined) return 'none';
  if (activation.usedAt !== undefined) return 'used';
  return activation.expiresAt <= now ? 'expired' : 'open';
}

/** Condition of every update that renews or voids a link. */
export const LINK_NOT_USED = { 'activation.usedAt': { $exists: false } } as const;

/** Left by an erasure, so that a pending insert of the account fails. */
export interface ErasedPlace {
  readonly _id: string;
  readonly requestId: string;
  readonly emailNormalized: string;
  readonly ein: string;
  readonly createdAt: Date;
  readonly erasedAt: Date;
}
/** Longer than a database or a driver can delay an insert. */
const PLACE_KEPT_SECONDS = 86_400;

/** Condition that leaves out every `ErasedPlace`. */
export const NOT_ERASED = { erasedAt: { $exists: false } } as const;

export function erasedPlace(requestId: string, now: Date): ErasedPlace {
  const mark = `erased:${requestId}`;
  const keys = { emailNormalized: mark, ein: mark };
  return { _id: mark, requestId, ...keys, createdAt: now, erasedAt: now };
}

/** Unique, and neither an e-mail address nor an EIN. */
export function releasedMark(accountId: string): string {
  return `released:${accountId}`;
}

export const accountIndexes: readonly IndexDefinition[] = [
  { collection: ACCOUNTS, name: 'accounts_email', key: { emailNormalized: 1 }, unique: true },
  { collection: ACCOUNTS, name: 'accounts_ein', key: { ein: 1 }, unique: true },
  { collection: ACCOUNTS, name: 'accounts_request', key: { requestId: 1 }, unique: true },
  {
    collection: ACCOUNTS,
    name: 'accounts_released',
    key: { releasedAt: 1 },
    partialFilterExpression: { released: { $exists: true } },
  },
  {
    collection: ACCOUNTS,
    name: 'accounts_erased',
    key: { erasedAt: 1 },
    partialFilterExpression: { erasedAt: { $exists: true } },
    expireAfterSeconds: PLACE_KEPT_SECONDS,
  },
  ...(['emailNormalized', 'ein'] as const).map((field) => ({
    collection: TEST_ACCOUNTS,
    name: `test_accounts_${field}`,
    key: { partnerId: 1, [field]: 1 } as const,
    unique: true as const,
    partialFilterExpression: { judged: true },
  })),
  { collection: TEST_ACCOUNTS, name: 'test_accounts_request', key: { requestId: 1 }, unique: true },
  {
    collection: TEST_ACCOUNTS,
    name: 'test_accounts_expiry',
    key: { createdAt: 1 },
    expireAfterSeconds: TESTS_KEPT_SECONDS,
  },
];
