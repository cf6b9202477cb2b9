/** The account made for an applicant: at most one for an e-mail address, an EIN or a request. */
import type { Db } from 'mongodb';
import type { MailLedger } from './mail-ledger.ts';
import type { IndexDefinition } from '../platform/mongo-indexes.ts';

export const ACCOUNTS = 'accounts';

/**
 * This room writes the collection; `mail/ledger-store.ts` writes its field `mail` and what a
 * hand-over changes with it.
 */
export const accountCollection = (db: Db) => db.collection<Account>(ACCOUNTS);

/** One document of `accounts`. */
export interface Account {
  readonly _id: string;
  /** As the applicant's partner gave it; mails go there. */
  readonly email: string;
  readonly emailNormalized: string;
  readonly ein: string;
  readonly businessName: string;
  readonly requestId: string;
  readonly partnerId: string;
  readonly createdAt: Date;
  /**
   * What the login application checks the link against, and where it notes the use (docs/login.md).
   */
  readonly activation?: Activation;
  readonly notifiedAt?: Date;
  /** Every hand-over of its mail (docs/decisions/0012). */
  readonly mail?: MailLedger;
  /**
   * Deliberate further mails so far; each has a Message-ID of its own, else the applicant's server
   * may drop it.
   */
  readonly mailVersion?: number;
  /** Corrected addresses so far; each voids the links that went to the one before. */
  readonly linkVersion?: number;
  /**
   * When an operator gave the e-mail address and the EIN free; both then hold `released:<account
   * id>`.
   */
  readonly releasedAt?: Date;
  /**
   * Who the account was made for, until erased or as long after the release as a completed request
   * is kept.
   */
  readonly released?: {
    readonly email: string;
    readonly ein: string;
    readonly businessName: string;
  };
}

export interface Activation {
  /** SHA-256 of the link's token in hex. */
  readonly tokenHash: string;
  readonly expiresAt: Date;
  /** Key of `LINK_SECRET` that made the token; absent for a secret without a key id. */
  readonly keyId?: string;
  /** When the login application activated the account. A used link never works again. */
  readonly usedAt?: Date;
}

/**
 * The state of an account's link; `none` before the first hand-over and after the link was made
 * void.
 */
export function linkState(
  { activation }: Pick<Account, 'activation'>,
  now: Date,
): 'none' | 'open' | 'expired' | 'used' {
  if (activation === undefined) return 'none';
  if (activation.usedAt !== undefined) return 'used';
  return activation.expiresAt <= now ? 'expired' : 'open';
}

/** Part of every update that makes a link work again: it misses once the link has been used. */
export const LINK_NOT_USED = { 'activation.usedAt': { $exists: false } } as const;

/**
 * Holds the place of a released e-mail address and EIN: unique, and neither an address nor nine
 * digits.
 */
export function releasedMark(accountId: string): string {
  return `released:${accountId}`;
}

export const accountIndexes: readonly IndexDefinition[] = [
  { collection: ACCOUNTS, name: 'accounts_email', key: { emailNormalized: 1 }, unique: true },
  { collection: ACCOUNTS, name: 'accounts_ein', key: { ein: 1 }, unique: true },
  { collection: ACCOUNTS, name: 'accounts_request', key: { requestId: 1 }, unique: true },
  // Holds the few accounts whose former e-mail address and EIN are still kept: for erasure, and to
  // remove them in time.
  {
    collection: ACCOUNTS,
    name: 'accounts_released',
    key: { releasedAt: 1 },
    partialFilterExpression: { released: { $exists: true } },
  },
  // Holds only the few accounts that may have been mailed twice.
  {
    collection: ACCOUNTS,
    name: 'accounts_mailed_twice',
    key: { 'mail.possible': 1 },
    partialFilterExpression: { 'mail.possible': { $gt: 1 } },
  },
];
