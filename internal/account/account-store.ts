/** Creates accounts: one insert, and the unique indexes decide every race. */
import type { Collection, Filter } from 'mongodb';
import type { CreationFact } from '../application/decide.ts';
import { normalizeEmail } from '../application/identity.ts';
import type { Application } from '../application/parse-application.ts';
import { ended, mayHaveArrived, toForget, type Intent, type MailLedger } from '../mail/ledger.ts';
import type { HandOver } from '../mail/mailer.ts';
import { Batcher, type Outcome } from '../platform/batcher.ts';
import type { Clock } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import {
  databaseSpan,
  insertTogether,
  isDuplicateKey,
  pastLockConflicts,
  updateTogether,
  type UpdateItem,
} from '../platform/mongo.ts';
import { inSpan } from '../platform/tracing.ts';
import type { Account } from './account.ts';

/** What a processor's workers do at the same time shares a command; two under way keep the database and us both busy. */
const TOGETHER = { maxItems: 100, maxInFlight: 2 } as const;
const WRITE_DEADLINE_MS = 10_000;
/** A key's holder may vanish between the insert and the look (released by an operator); then the insert is tried again. */
const CREATE_TRIES = 5;

export class AccountStore {
  readonly #collection: Collection<Account>;
  readonly #clock: Clock;
  readonly #inserts = new Batcher<Account, boolean>({ run: (accounts) => this.#insertTogether(accounts), ...TOGETHER });
  readonly #reads = new Batcher<string, Account | undefined>({ run: (ids) => this.#readTogether(ids), ...TOGETHER });
  readonly #updates = new Batcher<UpdateItem, undefined>({ run: (items) => this.#updateTogether(items), ...TOGETHER });
  readonly #accepted = new Batcher<AcceptedMail, MailLedger | undefined>({
    run: (mails) => this.#noteAccepted(mails),
    ...TOGETHER,
  });

  constructor(options: { readonly collection: Collection<Account>; readonly clock: Clock }) {
    this.#collection = options.collection;
    this.#clock = options.clock;
  }

  /** Creates the account of `requestId` once, however often it is called. Throws on database errors. */
  async create(
    application: Application,
    owner: { readonly requestId: string; readonly partnerId: string },
  ): Promise<CreationFact> {
    const account: Account = {
      _id: newId('acc'),
      email: application.email,
      emailNormalized: normalizeEmail(application.email),
      ein: application.ein,
      businessName: application.businessName,
      requestId: owner.requestId,
      partnerId: owner.partnerId,
      createdAt: this.#clock.now(),
    };
    return inSpan(databaseSpan('insert', this.#collection), async (span) => {
      const fact = await this.#createOrFind(account);
      span?.set({ 'partner_ingest.account': fact.kind });
      return fact;
    });
  }

  async #createOrFind(account: Account): Promise<CreationFact> {
    for (let tries = 1; tries <= CREATE_TRIES; tries += 1) {
      if (await this.#inserts.call(account)) return { kind: 'created', accountId: account._id };
      const fact = await this.#whoHolds(account);
      if (fact !== undefined) return fact;
    }
    throw new Error('a key of the account is taken, but nobody holds it');
  }

  /** Inserts that come at the same time share a write; false for an account whose key is taken. */
  async #insertTogether(wanted: readonly Account[]): Promise<Outcome<boolean>[]> {
    // In one order everywhere, so that batches of several processes do not wait for each other's keys crosswise.
    const accounts = wanted.toSorted((one, other) => (one.emailNormalized < other.emailNormalized ? -1 : 1));
    const { n, writeErrors, durable } = await pastLockConflicts(() =>
      insertTogether(this.#collection, accounts, WRITE_DEADLINE_MS),
    );
    if (!durable || n + writeErrors.length !== accounts.length) throw new Error('accounts were not written durably');
    const failed = new Map(writeErrors.map((error) => [accounts[error.index], error]));
    return wanted.map((account) => {
      const error = failed.get(account);
      return error === undefined || isDuplicateKey(error) ? { result: error === undefined } : { error };
    });
  }

  /** The error names one index at most, so all three keys are looked up; undefined when nobody holds any (any more). */
  async #whoHolds(account: Account): Promise<CreationFact | undefined> {
    const found = await this.#collection
      .find(
        { $or: [{ requestId: account.requestId }, { emailNormalized: account.emailNormalized }, { ein: account.ein }] },
        { projection: { requestId: 1, emailNormalized: 1, ein: 1 }, readConcern: 'majority' },
      )
      .toArray();
    const own = found.find((other) => other.requestId === account.requestId);
    if (own !== undefined) return { kind: 'own', accountId: own._id };
    const emailBy = found.find((other) => other.emailNormalized === account.emailNormalized)?.requestId;
    const einBy = found.find((other) => other.ein === account.ein)?.requestId;
    if (emailBy === undefined && einBy === undefined) return undefined;
    return {
      kind: 'taken',
      ...(emailBy === undefined ? {} : { emailBy }),
      ...(einBy === undefined ? {} : { einBy }),
    };
  }

  /** Reads that are asked for at the same time share a query. */
  read(accountId: string): Promise<Account | undefined> {
    return this.#reads.call(accountId);
  }

  async #readTogether(ids: readonly string[]): Promise<{ result: Account | undefined }[]> {
    const found = await this.#collection.find({ _id: { $in: [...new Set(ids)] } }).toArray();
    const byId = new Map(found.map((account) => [account._id, account]));
    return ids.map((id) => ({ result: byId.get(id) }));
  }

  /** Accounts whose applicant may have got more than one mail, at most `limit`; `secondMails` tells why. */
  async findMailedTwice(limit: number): Promise<Account[]> {
    return this.#collection
      .find({ 'mail.possible': { $gt: 1 } })
      .limit(limit)
      .toArray();
  }

  /**
   * Comes before each hand-over of the mail, in one update: what the login application will check the link against, and
   * that a mail may be out from now on. `account` is as it was read under the claim. Doing it twice changes nothing.
   */
  async beginHandOver(
    account: Account,
    intent: Intent,
    activation: { readonly tokenHash: string; readonly expiresAt: Date },
  ): Promise<void> {
    const path = pathOf(intent.claim);
    const forgotten = toForget(account.mail).map((claim) => [pathOf(claim), true] as const);
    await this.#updates.call({
      q: { ...asMailed(account), [path]: { $exists: false } },
      u: {
        $set: { activation, [path]: intent },
        $inc: { 'mail.begun': 1, 'mail.possible': 1 },
        ...(forgotten.length === 0 ? {} : { $unset: Object.fromEntries(forgotten) }),
      },
    });
  }

  async #updateTogether(items: readonly UpdateItem[]): Promise<Outcome<undefined>[]> {
    const { writeErrors, durable } = await pastLockConflicts(() =>
      updateTogether(this.#collection, items, WRITE_DEADLINE_MS),
    );
    if (!durable) throw new Error('accounts were not written durably');
    const failed = new Map(writeErrors.map((error) => [error.index, error]));
    return items.map((_, index) => (failed.has(index) ? { error: failed.get(index) } : { result: undefined }));
  }

  /**
   * Notes what came of it, also when the claim is lost by now: a mail that is out stays out. Doing it twice changes nothing.
   * `account` is as it was mailed: if an operator has corrected its address or asked for another mail
   * since, that one is still to come.
   * Gives the ledger as it is then, or undefined where nothing was left to note.
   */
  async endHandOver(
    account: Pick<Account, '_id' | 'email' | 'mailVersion'>,
    intent: Intent,
    handOver: HandOver,
  ): Promise<MailLedger | undefined> {
    const entry = ended(intent, handOver, this.#clock.now());
    const noted = handOver.result === 'accepted' ? await this.#accepted.call({ account, entry }) : undefined;
    if (noted !== undefined) return noted;
    const path = pathOf(intent.claim);
    const arrived = mayHaveArrived(entry);
    const open = { [path]: { $exists: true }, [`${path}.result`]: { $exists: false } };
    const found = await pastLockConflicts(() =>
      this.#collection.findOneAndUpdate(
        { _id: account._id, ...(arrived ? {} : open) },
        { $set: { [path]: entry }, ...(arrived ? {} : { $inc: { 'mail.possible': -1 } }) },
        { returnDocument: 'after', projection: { mail: 1 } },
      ),
    );
    return found?.mail;
  }

  /** The ledgers of accounts whose mail is out now, as they wanted it; undefined of one that wants another by now. */
  async #noteAccepted(mails: readonly AcceptedMail[]): Promise<Outcome<MailLedger | undefined>[]> {
    const written = await this.#updateTogether(
      mails.map(({ account, entry }) => ({
        q: asMailed(account),
        u: { $set: { [pathOf(entry.claim)]: entry, notifiedAt: entry.endedAt } },
      })),
    );
    const found = await this.#collection
      .find({ _id: { $in: mails.map(({ account }) => account._id) } }, { projection: { mail: 1 } })
      .toArray();
    const ledgers = new Map(found.map(({ _id, mail }) => [_id, mail]));
    return mails.map(({ account, entry }, index) => {
      const outcome = written[index]!;
      if ('error' in outcome) return outcome;
      const ledger = ledgers.get(account._id);
      const noted = ledger?.handOvers[String(entry.claim)]?.endedAt?.getTime() === entry.endedAt.getTime();
      return { result: noted ? ledger : undefined };
    });
  }
}

/** A mail that the relay took, as its account was when it was written. */
interface AcceptedMail {
  readonly account: Pick<Account, '_id' | 'email' | 'mailVersion'>;
  readonly entry: ReturnType<typeof ended>;
}

/** The account while it wants the same mail as when it was read. */
function asMailed({ _id, email, mailVersion }: Pick<Account, '_id' | 'email' | 'mailVersion'>): Filter<Account> {
  return { _id, email, mailVersion: mailVersion ?? { $exists: false } };
}

function pathOf(claim: number): `mail.handOvers.${number}` {
  return `mail.handOvers.${claim}`;
}
