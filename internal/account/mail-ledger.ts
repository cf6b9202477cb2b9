/**
 * The mail ledger of an account: each hand-over is written before it begins, then its outcome. Also
 * finds second e-mails in it.
 */
import type { Collection, Db, Document } from 'mongodb';
import {
  type Account,
  accountCollection,
  type Activation,
  type Intent,
  LINK_NOT_USED,
  type MailOutcome,
  type MailHandOver,
  type MailLedger,
} from './account.ts';
import type { Mode } from '../partner/key-terms.ts';
import type { Clock } from '../platform/process/clock.ts';
import { bounded } from '../platform/stores/mongo-read.ts';
import { pastLockConflicts } from '../platform/stores/mongo.ts';
import { joinUpdates, type OneUpdate } from '../platform/stores/mongo-joined.ts';

export class LedgerStore {
  readonly #accounts: Collection<Account>;
  readonly #clock: Clock;
  readonly #update: ReturnType<typeof joinUpdates<Account, OneUpdate<Account>>>;

  constructor(options: { readonly db: Db; readonly clock: Clock; readonly mode?: Mode }) {
    this.#accounts = accountCollection(options.db, options.mode);
    this.#clock = options.clock;
    this.#update = joinUpdates(this.#accounts, { mail: 1, notifiedAt: 1 });
  }

  /** Idempotent. If false, nothing may be mailed: the account has changed or its link was used. */
  async beginHandOver(
    account: Account,
    intent: Intent,
    activation: Omit<Activation, 'usedAt'>,
  ): Promise<boolean> {
    const path = pathOf(intent.claim);
    const forgotten = toForget(account.mail).map((claim) => [pathOf(claim), true] as const);
    const update = {
      q: { ...asMailed(account), ...LINK_NOT_USED, [path]: { $exists: false } },
      u: {
        $set: { activation, [path]: intent },
        $inc: { 'mail.begun': 1, 'mail.possible': 1 },
        ...(forgotten.length === 0 ? {} : { $unset: Object.fromEntries(forgotten) }),
      },
      // A repeated update matches nothing, because its hand-over is already stored.
      shows: ({ mail }: Account) =>
        mail?.handOvers[String(intent.claim)]?.startedAt.getTime() === intent.startedAt.getTime(),
    };
    return (await this.#update({ id: account._id, build: () => update })) !== undefined;
  }

  /**
   * Idempotent. Needs no claim, because a sent e-mail stays sent. If the relay accepted, a result
   * without `notifiedAt` says that another e-mail was ordered.
   */
  async endHandOver(
    account: MailedAccount,
    intent: Intent,
    outcome: MailOutcome,
  ): Promise<Pick<Account, 'mail' | 'notifiedAt'> | undefined> {
    const endedAt = this.#clock.now();
    const entry = { ...intent, endedAt, ...outcome };
    const path = pathOf(intent.claim);
    const write = async (q: Document, u: Document): Promise<boolean> => {
      const shows = ({ mail }: Account): boolean => {
        const noted = mail?.handOvers[String(intent.claim)];
        return noted?.endedAt?.getTime() === endedAt.getTime() && noted.result === entry.result;
      };
      const update = { q, u, shows };
      return (await this.#update({ id: account._id, build: () => update })) !== undefined;
    };
    const arrived = mayHaveArrived(entry);
    const open = { [path]: { $exists: true }, [`${path}.result`]: { $exists: false } };
    const isNotified =
      entry.result === 'accepted' &&
      (await write(asMailed(account), { $set: { [path]: entry, notifiedAt: endedAt } }));
    // If an accepted one is not, another e-mail was ordered meanwhile.
    const isNoted =
      isNotified ||
      (await write(arrived ? {} : open, {
        $set: { [path]: entry },
        ...(arrived ? {} : { $inc: { 'mail.possible': -1 } }),
      }));
    if (!isNoted) return undefined;
    // The first hand-over of an account is no second one, so its ledger is not needed.
    const isFirst = handOversOf(account.mail).every(({ claim }) => claim === intent.claim);
    if (isFirst) return isNotified ? { notifiedAt: endedAt } : {};
    const options = { projection: { mail: 1, notifiedAt: 1 }, ...bounded } as const;
    return (await this.#accounts.findOne({ _id: account._id }, options)) ?? undefined;
  }

  /** A failover may undo what was read; once acknowledged, this write makes it durable. */
  async confirmOut({ _id, notifiedAt, activation }: Account): Promise<boolean> {
    const out =
      notifiedAt === undefined ? { 'activation.usedAt': activation?.usedAt } : { notifiedAt };
    const { matchedCount } = await pastLockConflicts(() =>
      this.#accounts.updateOne({ _id, ...out }, { $set: out }),
    );
    return matchedCount === 1;
  }
}

type MailedAccount = Pick<Account, '_id' | 'email' | 'mailVersion' | 'mail'>;

function asMailed({ email, mailVersion }: MailedAccount): Document {
  return { email, mailVersion: mailVersion ?? { $exists: false } };
}

function pathOf(claim: number): `mail.handOvers.${number}` {
  return `mail.handOvers.${claim}`;
}

/** How the earlier e-mail ended: in doubt, without a result, or accepted. */
type SecondMailCause = 'ambiguous_data' | 'crash' | 'resent';

export interface SecondMail {
  readonly handOver: MailHandOver;
  readonly before: MailHandOver;
  readonly cause: SecondMailCause;
}

/** When full, the oldest hand-overs that cannot have arrived are deleted first. */
const HAND_OVERS_KEPT = 40;

/** The ledger of an account that is created with a hand-over. */
export function ledgerWith(intent: Intent): MailLedger {
  return { begun: 1, possible: 1, handOvers: { [intent.claim]: intent } };
}

export function handOversOf(ledger: MailLedger | undefined): MailHandOver[] {
  return Object.values(ledger?.handOvers ?? {}).toSorted((one, other) => one.claim - other.claim);
}

export function mayHaveArrived({ result }: Pick<MailHandOver, 'result'>): boolean {
  return result === undefined || result === 'accepted' || result === 'ambiguous';
}

export function possibleMails(ledger: MailLedger | undefined, since: number): number {
  return handOversOf(ledger).filter(
    (handOver) => handOver.claim > since && mayHaveArrived(handOver),
  ).length;
}

export function secondMails(handOvers: readonly MailHandOver[]): SecondMail[] {
  const possible = handOvers.filter(mayHaveArrived);
  return possible.slice(1).map((handOver, index) => {
    const before = possible[index]!;
    return { handOver, before, cause: causeOf(before, handOver) };
  });
}

function causeOf(before: MailHandOver, second: MailHandOver): SecondMailCause {
  if (before.endedAt === undefined || before.endedAt > second.startedAt) return 'crash';
  return before.result === 'ambiguous' ? 'ambiguous_data' : 'resent';
}

/** Includes earlier ones that a dead process did not count. */
export function newSecondMails(ledger: MailLedger, claim: number): SecondMail[] {
  const handOvers = handOversOf(ledger);
  const counted =
    handOvers.findLast((other) => other.claim !== claim && other.result !== undefined)?.claim ??
    -Infinity;
  return secondMails(handOvers).filter(
    ({ handOver }) => handOver.claim > counted && handOver.claim <= claim,
  );
}

/** Returns the claims to delete. */
export function toForget(ledger: MailLedger | undefined): number[] {
  const handOvers = handOversOf(ledger);
  const tooMany = Math.max(0, handOvers.length - HAND_OVERS_KEPT + 1);
  const harmlessFirst = [
    ...handOvers.filter((handOver) => !mayHaveArrived(handOver)),
    ...handOvers.filter(mayHaveArrived),
  ];
  return harmlessFirst.slice(0, tooMany).map(({ claim }) => claim);
}
