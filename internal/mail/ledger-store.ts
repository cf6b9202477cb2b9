/** Writes the mail ledger: each hand-over before it begins, and its result. */
import type { Collection, Db, Filter } from 'mongodb';
import {
  accountCollection,
  LINK_NOT_USED,
  type Account,
  type Activation,
} from '../account/account.ts';
import type { Mode } from '../partner/mode.ts';
import type { Clock } from '../platform/process/clock.ts';
import { bounded } from '../platform/stores/mongo-read.ts';
import { pastLockConflicts } from '../platform/stores/mongo.ts';
import type { Intent } from '../account/mail-ledger.ts';
import { ended, mayHaveArrived, toForget } from './ledger.ts';
import type { HandOver } from './relay-answers.ts';

export class LedgerStore {
  readonly #accounts: Collection<Account>;
  readonly #clock: Clock;

  constructor(options: { readonly db: Db; readonly clock: Clock; readonly mode?: Mode }) {
    this.#accounts = accountCollection(options.db, options.mode);
    this.#clock = options.clock;
  }

  /** Idempotent. If false, nothing may be mailed: the account has changed or its link was used. */
  async beginHandOver(
    account: Account,
    intent: Intent,
    activation: Omit<Activation, 'usedAt'>,
  ): Promise<boolean> {
    const path = pathOf(intent.claim);
    const forgotten = toForget(account.mail).map((claim) => [pathOf(claim), true] as const);
    const { _id } = account;
    const { matchedCount } = await pastLockConflicts(() =>
      this.#accounts.updateOne(
        { ...asMailed(account), ...LINK_NOT_USED, [path]: { $exists: false } },
        {
          $set: { activation, [path]: intent },
          $inc: { 'mail.begun': 1, 'mail.possible': 1 },
          ...(forgotten.length === 0 ? {} : { $unset: Object.fromEntries(forgotten) }),
        },
      ),
    );
    if (matchedCount === 1) return true;
    // A repeated update matches nothing, because its hand-over is already stored.
    const found = await this.#accounts.findOne({ _id }, { projection: { mail: 1 }, ...bounded });
    const noted = found?.mail?.handOvers[String(intent.claim)];
    return noted?.startedAt.getTime() === intent.startedAt.getTime();
  }

  /**
   * Idempotent; needs no claim, because a sent mail stays sent. Without `notifiedAt` the account
   * wants another mail by now.
   */
  async endHandOver(
    account: MailedAccount,
    intent: Intent,
    handOver: HandOver,
  ): Promise<Pick<Account, 'mail' | 'notifiedAt'> | undefined> {
    const { email } = account;
    const entry = ended(intent, handOver, { endedAt: this.#clock.now(), email });
    const noted = handOver.result === 'accepted' ? await this.#noteAccepted(account, entry) : null;
    if (noted !== null) return noted;
    const path = pathOf(intent.claim);
    const arrived = mayHaveArrived(entry);
    const open = { [path]: { $exists: true }, [`${path}.result`]: { $exists: false } };
    const found = await pastLockConflicts(() =>
      this.#accounts.findOneAndUpdate(
        { _id: account._id, ...(arrived ? {} : open) },
        { $set: { [path]: entry }, ...(arrived ? {} : { $inc: { 'mail.possible': -1 } }) },
        ledgerAfter,
      ),
    );
    return found ?? undefined;
  }

  /** A failover may undo what a read returned, but not what an acknowledged write follows. */
  async confirmOut({ _id, notifiedAt, activation }: Account): Promise<boolean> {
    const out =
      notifiedAt === undefined ? { 'activation.usedAt': activation?.usedAt } : { notifiedAt };
    const { matchedCount } = await pastLockConflicts(() =>
      this.#accounts.updateOne({ _id, ...out }, { $set: out }),
    );
    return matchedCount === 1;
  }

  /** Null if the account wants another mail by now. */
  #noteAccepted(account: MailedAccount, entry: ReturnType<typeof ended>) {
    return pastLockConflicts(() =>
      this.#accounts.findOneAndUpdate(
        asMailed(account),
        { $set: { [pathOf(entry.claim)]: entry, notifiedAt: entry.endedAt } },
        ledgerAfter,
      ),
    );
  }
}

const ledgerAfter = { returnDocument: 'after', projection: { mail: 1, notifiedAt: 1 } } as const;

type MailedAccount = Pick<Account, '_id' | 'email' | 'mailVersion'>;

function asMailed({ _id, email, mailVersion }: MailedAccount): Filter<Account> {
  return { _id, email, mailVersion: mailVersion ?? { $exists: false } };
}

function pathOf(claim: number): `mail.handOvers.${number}` {
  return `mail.handOvers.${claim}`;
}
