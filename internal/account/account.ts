/** The account made for an applicant: at most one for an e-mail address, an EIN or a request. */
import type { MailLedger } from '../mail/ledger.ts';
import type { IndexDefinition } from '../platform/mongo.ts';

export const ACCOUNTS = 'accounts';

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
  /** What the login application checks the link against: SHA-256 of its token in hex, and until when it holds. */
  readonly activation?: { readonly tokenHash: string; readonly expiresAt: Date };
  readonly notifiedAt?: Date;
  /** Every hand-over of its mail (docs/decisions/0012). */
  readonly mail?: MailLedger;
  /** Deliberate further mails so far; each has a Message-ID of its own, else the applicant's server may drop it. */
  readonly mailVersion?: number;
  /** Corrected addresses so far; each voids the links that went to the one before. */
  readonly linkVersion?: number;
  /** When an operator gave the e-mail address and the EIN free; both then hold `released:<account id>`. */
  readonly releasedAt?: Date;
  /** Who the account was made for, until erased. */
  readonly released?: { readonly email: string; readonly ein: string; readonly businessName: string };
}

/** Holds the place of a released e-mail address and EIN: unique, and neither an address nor nine digits. */
export function releasedMark(accountId: string): string {
  return `released:${accountId}`;
}

export const accountIndexes: readonly IndexDefinition[] = [
  { collection: ACCOUNTS, name: 'accounts_email', key: { emailNormalized: 1 }, unique: true },
  { collection: ACCOUNTS, name: 'accounts_ein', key: { ein: 1 }, unique: true },
  { collection: ACCOUNTS, name: 'accounts_request', key: { requestId: 1 }, unique: true },
  // Holds only the few accounts that may have been mailed twice.
  {
    collection: ACCOUNTS,
    name: 'accounts_mailed_twice',
    key: { 'mail.possible': 1 },
    partialFilterExpression: { 'mail.possible': { $gt: 1 } },
  },
];
