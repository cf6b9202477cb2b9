/** Faults of the relay, and bounces. */
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { systemClock } from '../../internal/platform/process/clock.ts';
import { OperatorMoves } from '../../internal/submission/operator-moves.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import type { FaultChoice, SmtpFault } from '../support/mail-catcher.ts';
import type { Random } from '../support/random.ts';
import { retention } from '../support/records.ts';
import type { Injector } from './fault.ts';
import type { ChaosWorld } from './world.ts';

const HURRY_EVERY_MS = 2_000;
const BOUNCED = 50;
const BOUNCE = 'the e-mail bounced after the mail server had taken it';

const movesOf = ({ db }: ChaosWorld): OperatorMoves =>
  new OperatorMoves({ db, retention, clock: systemClock });

/** Does what `partner-ingest retry --state dead_lettered --yes` does. */
async function retryDeadLetters(world: ChaosWorld): Promise<void> {
  const letters = await world.db
    .collection<SubmissionRecord>(SUBMISSIONS)
    .find({ state: 'dead_lettered' })
    .toArray();
  if (letters.length === 0) return;
  for (const { _id } of letters) world.facts.reopened.add(_id);
  await movesOf(world).moveAll(
    'retry',
    letters.map((seen) => ({ seen, to: 'account_created', accountId: seen.accountId })),
    'operator retry',
  );
}

export async function retryMails(world: ChaosWorld): Promise<void> {
  await hurryMails(world);
  await retryDeadLetters(world);
}

/** Retries each e-mail that waits for its last try, as an operator would. */
export async function hurryMails(world: ChaosWorld): Promise<void> {
  const waiting = await world.db
    .collection<SubmissionRecord>(SUBMISSIONS)
    .find({ state: 'account_created', ambiguous: { $gte: 2 }, dueAt: { $gt: new Date() } })
    .toArray();
  await Promise.all(waiting.map((record) => movesOf(world).hurry(record)));
}

function smtpFault(
  about: string,
  choose: (recipient: string, random: Random) => SmtpFault | undefined,
): Injector {
  return {
    about,
    inject: async (world, random) => {
      const chosen = new Map<string, SmtpFault | undefined>();
      const choice: FaultChoice = ({ rcptTo }) => {
        const recipient = rcptTo.at(-1);
        if (recipient === undefined) return undefined;
        // The catcher asks at each phase and must get the same answer.
        if (!chosen.has(recipient)) chosen.set(recipient, choose(recipient, random));
        const fault = chosen.get(recipient);
        return fault === undefined ? undefined : world.facts.tampered(recipient, fault);
      };
      world.mail.setFault(choice);
    },
    heal: async (world) => {
      world.mail.setFault(undefined);
      // Hung sessions would last ten minutes.
      world.facts.mailStopped();
      await world.mail.stopListening();
      await world.mail.listenAgain();
    },
  };
}

/** The last try would come after 50 minutes, so an operator retries. */
function impatiently(fault: Injector): Injector {
  let hurrying: NodeJS.Timeout | undefined;
  return {
    about: `${fault.about}; an operator retries what waits`,
    inject: async (world, random) => {
      await fault.inject(world, random);
      hurrying = setInterval(() => void hurryMails(world).catch(() => undefined), HURRY_EVERY_MS);
    },
    heal: async (world) => {
      clearInterval(hurrying);
      await fault.heal(world);
    },
  };
}

export const mailFaults = {
  'smtp-stopped': {
    about: 'the mail server refuses connections',
    inject: async (world) => {
      world.facts.mailStopped();
      await world.mail.stopListening();
    },
    heal: (world) => world.mail.listenAgain(),
  },
  'smtp-550': smtpFault('the mail server refuses every third recipient for good', (_, random) =>
    random.below(3) === 0
      ? { at: 'rcpt', answer: { code: 550, message: '5.1.1 no such user' } }
      : undefined,
  ),
  'mails-bounced': {
    about: 'bounces of fifty e-mails are reported; healed when they are older than a day',
    inject: async (world) => {
      const requests = world.db.collection<SubmissionRecord>(SUBMISSIONS);
      const mailed = await requests.find({ state: 'completed' }).limit(BOUNCED).toArray();
      const owners = { requestId: { $in: mailed.map(({ _id }) => _id) } };
      for await (const { emailNormalized } of world.db.collection<Account>(ACCOUNTS).find(owners))
        world.facts.refused.add(emailNormalized);
      await Promise.all(
        mailed.map((record) =>
          movesOf(world).move(
            'report_bounce',
            { seen: record, accountId: record.accountId },
            BOUNCE,
          ),
        ),
      );
    },
    heal: async (world) =>
      void (await world.db
        .collection<SubmissionRecord>(SUBMISSIONS)
        .updateMany({ bouncedAt: { $exists: true } }, { $unset: { bouncedAt: true } })),
  },
  'smtp-451': smtpFault('the mail server says "later"', () => ({
    at: 'rcpt',
    answer: { code: 451, message: '4.7.1 try again later' },
  })),
  'smtp-refuses-all': smtpFault('the mail server knows none of the recipients', () => ({
    at: 'rcpt',
    answer: { code: 550, message: '5.1.1 no such user' },
  })),
  'smtp-hanging': smtpFault(
    'the mail server stops answering, at RCPT or after the content',
    (_, random) => ({
      at: random.pick(['rcpt', 'data-command', 'data']),
      hang: true,
    }),
  ),
  'smtp-cut-after-store': smtpFault(
    'the connection ends after the content, the mail is kept',
    () => ({
      at: 'data',
      cut: 'after-store',
    }),
  ),
  'smtp-cut-before-store': impatiently(
    smtpFault('the connection ends after the content, and the mail is not kept', () => ({
      at: 'data',
      cut: 'before-store',
    })),
  ),
  'smtp-sender-refused': {
    about: 'the relay refuses our sender address',
    inject: async (world) =>
      world.mail.setFault(() => ({
        at: 'mail',
        answer: { code: 553, message: '5.7.1 sender not allowed' },
      })),
    heal: async (world) => world.mail.setFault(undefined),
  },
  'smtp-policy': smtpFault('the relay refuses each e-mail by its policy', () => ({
    at: 'data',
    answer: { code: 554, message: '5.7.1 refused by policy' },
  })),
} as const satisfies Readonly<Record<string, Injector>>;
