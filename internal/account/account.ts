/**
 * An applicant's account, unique by e-mail address, EIN and request; that of a test among its
 * partner's tests only.
 */
import type { Db } from 'mongodb';
import type { Application } from '../application/fields.ts';
import { type Mode, TESTS_KEPT_SECONDS } from '../partner/key-terms.ts';
import type { IndexDefinition } from '../platform/stores/mongo-indexes.ts';

export const ACCOUNTS = 'accounts';
export const TEST_ACCOUNTS = 'test_accounts';

export const accountCollection = (db: Db, { test }: Mode = {}) =>
  test ? db.collection<Account>(TEST_ACCOUNTS) : db.collection<Account>(ACCOUNTS);

/** E-mails go to the address as the partner sent it. */
export interface Account extends Application {
  readonly _id: string;
  readonly emailNormalized: string;
  readonly requestId: string;
  readonly partnerId: string;
  readonly createdAt: Date;
  /** Of a test: unique like a live account, because its EIN chose no ending. */
  readonly judged?: true;
  /** The login application reads this and records the use (docs/login.md). */
  readonly activation?: Activation;
  readonly notifiedAt?: Date;
  readonly mail?: MailLedger;
  /** Each further e-mail gets its own Message-ID, or servers may drop it. */
  readonly mailVersion?: number;
  /** Counts corrections; each voids earlier links. */
  readonly linkVersion?: number;
  /** `emailNormalized` and `ein` then hold `released:<account id>`. */
  readonly releasedAt?: Date;
  /** An operator closed the request: links that were sent are void. */
  readonly closedAt?: Date;
  /** Only of an `ErasedPlace`. */
  readonly erasedAt?: Date;
  /** Kept as long as a completed request. */
  readonly released?: Application;
}

export interface Activation {
  /** SHA-256 in hex. */
  readonly tokenHash: string;
  readonly expiresAt: Date;
  /** The id of the key, if `LINK_SECRET` has ids. */
  readonly keyId?: string;
  readonly usedAt?: Date;
}

/** Without a result, the process died, froze or lost the database, and the e-mail may be out. */
export interface Intent {
  readonly claim: number;
  readonly startedAt: Date;
  readonly attempt: number;
  readonly host: string;
}

/** At `mail`, `rcpt` and `data`, the relay refused that command. */
export type Phase = 'connect' | 'session' | 'mail' | 'rcpt' | 'data' | 'content' | 'answered';

/** What became of a hand-over. */
export interface MailOutcome {
  readonly result: 'accepted' | 'refused' | 'unreachable' | 'ambiguous' | 'aborted';
  readonly phase?: Phase;
  /** The SMTP reply code; `enhancedCode` is that of RFC 3463. */
  readonly code?: number;
  readonly enhancedCode?: string;
  /** nodemailer's words, such as `ETIMEDOUT CONN`. */
  readonly cause?: string;
  /** The relay's words, without the applicant's address: only people see them. */
  readonly answer?: string;
}

export type MailHandOver = Intent & Partial<MailOutcome & { readonly endedAt: Date }>;

export interface MailLedger {
  readonly begun: number;
  /** Above 1, the applicant may have got the e-mail twice. */
  readonly possible: number;
  /** By claim. */
  readonly handOvers: Readonly<Record<string, MailHandOver>>;
}

export function linkState(
  { activation }: Pick<Account, 'activation'>,
  now: Date,
): 'none' | 'open' | 'expired' | 'used' {
  if (activation === undefined) return 'none';
  if (activation.usedAt !== undefined) return 'used';
  return activation.expiresAt <= now ? 'expired' : 'open';
}

/** Every update that renews a link needs this. */
export const LINK_NOT_USED = { 'activation.usedAt': { $exists: false } } as const;

/** What an erasure leaves, so that an insert that is still pending collides with it. */
export interface ErasedPlace {
  readonly _id: string;
  readonly requestId: string;
  readonly emailNormalized: string;
  readonly ein: string;
  readonly createdAt: Date;
  readonly erasedAt: Date;
}
/** Longer than a database or a driver can hold an insert back. */
const PLACE_KEPT_SECONDS = 86_400;

/** Every query for accounts needs this. */
export const NOT_ERASED = { erasedAt: { $exists: false } } as const;

export function erasedPlace(requestId: string, now: Date): ErasedPlace {
  const mark = `erased:${requestId}`;
  const keys = { emailNormalized: mark, ein: mark };
  return { _id: mark, requestId, ...keys, createdAt: now, erasedAt: now };
}

/** Unique, and neither an address nor nine digits. */
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
