/** What the operator's command consists of: its output, and the stores where the command needs them. */
import { userInfo } from 'node:os';
import { AccountCorrections } from '../../internal/account/account-corrections.ts';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import type { Desk, ExitCode, Output } from '../../internal/operator/command.ts';
import { UsageError, type Values } from '../../internal/operator/options.ts';
import { runCommand } from '../../internal/operator/run-command.ts';
import { Trail } from '../../internal/operator/trail.ts';
import { KeyStore, PARTNER_KEYS, type PartnerKey } from '../../internal/partner/key-store.ts';
import { systemClock as clock } from '../../internal/platform/clock.ts';
import { ConfigError } from '../../internal/platform/config-error.ts';
import { loadConfig, readTerminalEnvironment } from '../../internal/platform/config.ts';
import { withDeadline } from '../../internal/platform/deadline.ts';
import { createMongo } from '../../internal/platform/mongo.ts';
import { RATE_LIMITED } from '../../internal/submission/indexes.ts';
import { OperatorMoves } from '../../internal/submission/operator-moves.ts';
import { SubmissionStore } from '../../internal/submission/submission-store.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';

const DAY_MS = 86_400_000;
const CLOSE_DEADLINE_MS = 2_000;

/** Runs one command line; resolves with its exit code once everything is closed. */
export async function runCli(words: readonly string[]): Promise<ExitCode> {
  let mongo: ReturnType<typeof createMongo> | undefined;
  const openDesk = (values: Values): Desk => {
    const config = configOrUsage();
    mongo = createMongo(config.MONGODB_URI, 'partner-ingest cli');
    const db = mongo.db(config.MONGODB_DATABASE);
    const requests = db.collection<SubmissionRecord>(SUBMISSIONS);
    const accounts = db.collection<Account>(ACCOUNTS);
    const retention = {
      completed: config.RETENTION_COMPLETED_DAYS,
      rejected: config.RETENTION_REJECTED_DAYS,
      undeliverable: config.RETENTION_UNDELIVERABLE_DAYS,
    };
    return {
      requests,
      accounts,
      partnerKeys: db.collection<PartnerKey>(PARTNER_KEYS),
      keyStore: new KeyStore({ db, clock }),
      rateLimited: db.collection(RATE_LIMITED),
      store: new SubmissionStore({ collection: requests, retention, clock }),
      moves: new OperatorMoves({ collection: requests, retention, clock }),
      corrections: new AccountCorrections({ collection: accounts, clock }),
      trail: new Trail({
        db,
        clock,
        by: values.as ?? loggedInUser(),
        ...(values.why === undefined ? {} : { why: values.why }),
      }),
      accountRequestsKeptMs: Math.min(retention.completed, retention.undeliverable) * DAY_MS,
    };
  };
  const where = (): string => mongo?.options.hosts.join(', ') ?? 'MONGODB_URI';
  // The reader of a pipe may have seen enough ("| head"): that is no fault.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1));
  try {
    return await runCommand(words, { out: terminalOutput, clock, openDesk, where });
  } finally {
    await withDeadline(mongo?.close() ?? Promise.resolve(), CLOSE_DEADLINE_MS, 'closing').catch(() => {});
  }
}

function configOrUsage() {
  try {
    return loadConfig('cli');
  } catch (error) {
    if (error instanceof ConfigError) throw new UsageError(error.faults.join('; '));
    throw error;
  }
}

/** A container's user often has no name; then its number says at least that. */
function loggedInUser(): string {
  const { user } = readTerminalEnvironment();
  if (user !== undefined && user !== '') return user;
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? 'unknown'}`;
  }
}

const terminalOutput: Output = {
  line: (text = '') => void process.stdout.write(`${text}\n`),
  json: (value) => void process.stdout.write(`${JSON.stringify(value, undefined, 2)}\n`),
  jsonLine: (value) => void process.stdout.write(`${JSON.stringify(value)}\n`),
  note: (text) => void process.stderr.write(`${text}\n`),
  drained: () =>
    process.stdout.writableNeedDrain
      ? new Promise((resolve) => process.stdout.once('drain', () => resolve()))
      : Promise.resolve(),
};
