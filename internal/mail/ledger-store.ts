/** Writes the mail ledger: each hand-over before it begins, and its result. */
import type { Collection, Db, Filter } from 'mongodb';
import {
  accountCollection,
  LINK_NOT_USED,
  type Account,
  type Activation,
} from '../account/account.ts';
import { Batcher, type Outcome } from '../platform/batcher.ts';
import type { Clock } from '../platform/clock.ts';
import {
  NotDurableError,
  pastLockConflicts,
  updateTogether,
  writePastLockConflicts,
  type UpdateItem,
} from '../platform/mongo.ts';
import type { Intent, MailLedger } from '../account/mail-ledger.ts';
import { ended, firstLedger, mayHaveArrived, toForget } from './ledger.ts';
import type { HandOver } from './mailer.ts';

export class LedgerStore {
  readonly #accounts: Collection<Account>;
  readonly #clock: Clock;
  readonly #begun = new Batcher<BegunHandOver, boolean>((begun) => this.#noteBegun(begun));
  readonly #accepted = new Batcher<AcceptedMail, MailLedger | undefined>((mails) =>
    this.#noteAccepted(mails),
  );

  constructor(options: { readonly db: Db; readonly clock: Clock }) {
    this.#accounts = accountCollection(options.db);
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
    return this.#begun.call({
      accountId: account._id,
      intent,
      q: { ...asMailed(account), ...LINK_NOT_USED, [path]: { $exists: false } },
      u: {
        $set: { activation, [path]: intent },
        $inc: { 'mail.begun': 1, 'mail.possible': 1 },
        ...(forgotten.length === 0 ? {} : { $unset: Object.fromEntries(forgotten) }),
      },
    });
  }

  async #noteBegun(begun: readonly BegunHandOver[]): Promise<Outcome<boolean>[]> {
    const { outcomes, matched } = await this.#updateTogether(begun.map(({ q, u }) => ({ q, u })));
    if (matched === begun.length)
      return outcomes.map((outcome) => ('error' in outcome ? outcome : { result: true }));
    // A repeated update matches nothing, because its hand-over is already stored.
    const ledgers = await this.#ledgersOf(begun.map(({ accountId }) => accountId));
    return begun.map(({ accountId, intent }, index) => {
      const outcome = outcomes[index]!;
      if ('error' in outcome) return outcome;
      const noted = ledgers.get(accountId)?.handOvers[String(intent.claim)];
      return { result: noted?.startedAt.getTime() === intent.startedAt.getTime() };
    });
  }

  async #updateTogether(
    items: readonly UpdateItem[],
  ): Promise<{ readonly outcomes: Outcome<undefined>[]; readonly matched: number }> {
    const { n, writeErrors, durable } = await writePastLockConflicts(items, (some) =>
      updateTogether(this.#accounts, some),
    );
    if (!durable) throw new NotDurableError('no majority acknowledged the accounts in time');
    const failed = new Map(writeErrors.map((error) => [error.index, error]));
    const outcomes = items.map((_, index) =>
      failed.has(index) ? { error: failed.get(index) } : { result: undefined },
    );
    return { outcomes, matched: n };
  }

  async #ledgersOf(ids: readonly string[]): Promise<ReadonlyMap<string, MailLedger | undefined>> {
    const found = await this.#accounts
      .find({ _id: { $in: [...ids] } }, { projection: { mail: 1 } })
      .toArray();
    return new Map(found.map(({ _id, mail }) => [_id, mail]));
  }

  /** Idempotent; needs no claim, because a sent mail stays sent. */
  async endHandOver(
    account: MailedAccount,
    intent: Intent,
    handOver: HandOver,
  ): Promise<MailLedger | undefined> {
    const entry = ended(intent, handOver, this.#clock.now());
    const noted =
      handOver.result === 'accepted' ? await this.#accepted.call({ account, entry }) : undefined;
    if (noted !== undefined) return noted;
    const path = pathOf(intent.claim);
    const arrived = mayHaveArrived(entry);
    const open = { [path]: { $exists: true }, [`${path}.result`]: { $exists: false } };
    const found = await pastLockConflicts(() =>
      this.#accounts.findOneAndUpdate(
        { _id: account._id, ...(arrived ? {} : open) },
        { $set: { [path]: entry }, ...(arrived ? {} : { $inc: { 'mail.possible': -1 } }) },
        { returnDocument: 'after', projection: { mail: 1 } },
      ),
    );
    return found?.mail;
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

  /** Undefined if the account wants another mail by now. */
  async #noteAccepted(mails: readonly AcceptedMail[]): Promise<Outcome<MailLedger | undefined>[]> {
    const updates = mails.map(({ account, entry }) => ({
      q: asMailed(account),
      u: { $set: { [pathOf(entry.claim)]: entry, notifiedAt: entry.endedAt } },
    }));
    // Most accounts get one mail, so their ledgers need no read.
    if (mails.every(({ account }) => account.mail === undefined)) {
      const alone = updates.map(({ q, u }) => ({ q: { ...q, 'mail.begun': 1 }, u }));
      const { matched } = await this.#updateTogether(alone);
      if (matched === mails.length)
        return mails.map(({ entry }) => ({ result: firstLedger(entry) }));
    }
    const { outcomes } = await this.#updateTogether(updates);
    const ledgers = await this.#ledgersOf(mails.map(({ account }) => account._id));
    return mails.map(({ account, entry }, index) => {
      const outcome = outcomes[index]!;
      if ('error' in outcome) return outcome;
      const ledger = ledgers.get(account._id);
      const noted =
        ledger?.handOvers[String(entry.claim)]?.endedAt?.getTime() === entry.endedAt.getTime();
      return { result: noted ? ledger : undefined };
    });
  }
}

interface BegunHandOver extends UpdateItem {
  readonly accountId: string;
  readonly intent: Intent;
}

type MailedAccount = Pick<Account, '_id' | 'email' | 'mailVersion' | 'mail'>;

interface AcceptedMail {
  readonly account: MailedAccount;
  readonly entry: ReturnType<typeof ended>;
}

function asMailed({
  _id,
  email,
  mailVersion,
}: Pick<Account, '_id' | 'email' | 'mailVersion'>): Filter<Account> {
  return { _id, email, mailVersion: mailVersion ?? { $exists: false } };
}

function pathOf(claim: number): `mail.handOvers.${number}` {
  return `mail.handOvers.${claim}`;
}
