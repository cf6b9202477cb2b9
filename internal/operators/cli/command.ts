/** An operator's command: its arguments and its report. */
import { MongoError } from 'mongodb';
import { z } from 'zod';
import { givenFields, type OrderStores } from '../orders/order.ts';
import type { KeptFindings } from '../../partner/kept-findings.ts';
import { isKeysOf } from '../../installation/installation.ts';
import { KEY_ID_LENGTH } from '../../partner/api-key.ts';
import { isPartnerId } from '../../partner/key-secret.ts';
import type { Clock } from '../../platform/process/clock.ts';
import { DeadlineError } from '../../platform/process/deadline.ts';
import { isContactFailure } from '../../platform/process/server-words.ts';
import type { Reads } from '../view/reads.ts';
import { fields, text, TEXT_MAX, when } from '../view/search-fields.ts';

export const EXIT = {
  ok: 0,
  found: 1,
  usage: 2,
  storeAway: 3,
  /** sendmail's EX_TEMPFAIL: a mail system then delivers the mail again. */
  later: 75,
  stopped: 130,
  fault: 70,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** The target is missing, or its state forbids the command; with `later`, only for now. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
  readonly code: ExitCode;

  constructor(message: string, code: ExitCode = EXIT.found) {
    super(message);
    this.code = code;
  }
}

export class UsageError extends CommandError {
  constructor(message: string) {
    super(message, EXIT.usage);
  }
}

/** The system, not the driver, reports a failed look-up of a "mongodb+srv" name. */
export const isOfStore = (error: unknown): boolean =>
  error instanceof MongoError || error instanceof DeadlineError || isContactFailure(error);

export type CommandStores = OrderStores &
  Pick<Reads, 'accountRequestsKeptMs' | 'traffic'> & {
    readonly kept: KeptFindings;
    /** An accepted live request is kept at least as long. */
    readonly acceptedKeptMs: number;
  };

/** One model, as text for people or as JSON for programs. */
export interface Report {
  readonly json: unknown;
  /** Safe for a terminal; empty where the notes say all. */
  readonly text: string;
  /** For people, on standard error after the text. */
  readonly notes?: readonly string[];
  readonly code?: ExitCode;
  /** The error that ended the command before all was done. */
  readonly fault?: unknown;
}

/** One line for each, written as fast as it is read. */
export interface Lines<Line extends object = object> {
  readonly lines: AsyncIterable<Line>;
  /** For people; else a line is JSON. */
  readonly textOf?: (line: Line) => string;
  /** What is said behind the last line. */
  readonly end?: () => Pick<Report, 'notes' | 'code'>;
}

export interface Call {
  readonly positionals: readonly string[];
  readonly values: Values;
  readonly clock: Clock;
  /** Writes to standard error at once, for people. */
  readonly note: (text: string) => void;
  /** Reading this catches Ctrl-C, so only commands that can stop between two pages do it. */
  readonly stop: AbortSignal;
  readonly keysNamespace: string;
  /** Whether the controller follows `Partner`s. */
  readonly followsPartners: boolean;
  /** Admin addresses of the processes. */
  readonly processes: readonly string[];
  /** Says why the database failed, without user or password. */
  readonly storeFault: (error: unknown) => string;
  /** Opens the stores at first use. */
  readonly stores: CommandStores;
}

/** Its help stands in help.yaml under its name. */
export interface Command {
  readonly name: string;
  readonly positionals: readonly Positional[];
  readonly options: readonly OptionName[];
  readonly run: (call: Call) => Promise<Report | Lines>;
}

/* The options and arguments of all commands. */

/** For more, `export` is the right command. */
const PAGE_MAX = 1_000;
/** A higher rate only waits for the relay. */
export const RATE_DEFAULT = 1_000;
/** No store is faster. */
const RATE_MAX = 1_000_000;
const WHO_MAX = 100;
const FILE_MAX = 4_096;

const count = (max: number) => {
  const rule = `It must be a whole number from 1 to ${max}.`;
  return z.coerce.number(rule).int(rule).min(1, rule).max(max, rule);
};

const namespace = z
  .string()
  .regex(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/, 'It must be the name of a Kubernetes namespace.');

/** A namespace, or a folder as `directory:PATH`. */
export const keySource: Positional = {
  syntax: '<SOURCE>',
  about: 'the namespace of the partner Secrets, or directory:PATH',
  schema: z
    .string()
    .transform((source) => (source.startsWith('directory:') ? source : `namespace:${source}`))
    .refine(isKeysOf, 'It must be the name of a namespace, or directory: and an absolute path.'),
};

const path = z.string().min(1, 'It needs a value.');
const withoutSlash = (url: string): string => url.replace(/\/$/, '');

const flag = (flags: string, about: string) => ({ flags, about });
const option = <Schema extends z.ZodType>(flags: string, about: string, schema: Schema) => ({
  flags,
  about,
  schema,
});

/** Relative times count from `now`. */
export function optionsAt(now: Date) {
  return {
    json: flag('--json', 'JSON for programs instead of text for people'),
    reveal: flag('--reveal', 'personal data in clear; noted in operator_audit'),
    yes: flag('--yes', 'do it; without this nothing changes and what would happen is listed'),
    test: flag('--test', 'for tests: nothing it submits is real'),
    count: flag('--count', 'how many of each kind, instead of a list'),
    replay: flag('--replay', 'after a restore: repeat what the erasure register names'),
    issuer: option(
      '--issuer <URL>',
      'base URL of the service, up to /api/v1, in a first set of keys',
      z.url({ protocol: /^https?$/, error: 'It must be a URL.' }).transform(withoutSlash),
    ),
    beside: option('--beside <FILE>', 'the set that gets one more key; - is standard input', path),
    body: option('--body <FILE>', 'the body that was sent', path),
    keys: option('--keys <KEYS>', 'the JWK set of the service, as a file or as JSON', path),
    as: option(
      '--as <NAME>',
      'who you are, for operator_audit (default: $USER, else the account of the system)',
      text(WHO_MAX),
    ),
    why: option('--why <TEXT>', 'why, for operator_audit: a ticket, a sentence', givenFields.why),
    email: option('--email <ADDRESS>', 'of the applicant, in any case', fields.email),
    ein: option('--ein <DIGITS>', 'nine digits; a hyphen is ignored', fields.ein),
    name: option('--name <TEXT>', 'part of the business name, in any case', fields.name),
    reason: option(
      '--reason <TEXT>',
      "part of the last error, or the code of a rejection's reason",
      fields.reason,
    ),
    rate: option(
      '--rate <N>',
      `at most this many a second (default: ${RATE_DEFAULT})`,
      count(RATE_MAX),
    ),
    partner: option('--partner <ID>', 'only of this partner', fields.partner),
    state: option('--state <STATE>', 'only in this state', fields.state),
    idempotencyKey: option(
      '--idempotency-key <KEY>',
      'of the request, without quotes; needs --partner',
      text(TEXT_MAX),
    ),
    history: option(
      '--history <FILE>',
      'compare this history of prove.mjs with what is stored; "-" reads standard input',
      text(FILE_MAX),
    ),
    limit: option('--limit <N>', `at most this many, up to ${PAGE_MAX}`, count(PAGE_MAX)),
    request: option('--request <REQUEST_ID>', 'the request whose e-mail it is', text(TEXT_MAX)),
    messageId: option('--message-id <ID>', 'Message-ID of the e-mail', text(TEXT_MAX)),
    status: option(
      '--status <CODE>',
      'status of the bounce (RFC 3463), such as 5.1.1',
      givenFields.status,
    ),
    namespace: option(
      '--namespace <NAME>',
      'of the Secret (default: the one the controller watches)',
      namespace,
    ),
    since: option(
      '--since <WHEN>',
      'not older than 30m, 24h, 7d, or a date such as 2026-11-21T09:00Z; UTC',
      when(now),
    ),
    until: option('--until <WHEN>', 'not newer than that', when(now)),
  };
}

export type Options = ReturnType<typeof optionsAt>;
export type OptionName = keyof Options;
type Flag = 'json' | 'reveal' | 'yes' | 'test' | 'count' | 'replay';

export type Values = { readonly [Name in Flag]?: true } & {
  readonly [Name in Exclude<OptionName, Flag>]?: z.output<Options[Name]['schema']>;
};

/** Brackets in `syntax` make it optional. */
export interface Positional {
  readonly syntax: string;
  readonly about: string;
  readonly schema: z.ZodType<string>;
}

export const receiptFile: Positional = {
  syntax: '<FILE>',
  about: 'file with receipts; - is standard input',
  schema: path,
};
export const manifestFile: Positional = {
  syntax: '<FILE>',
  about: 'file with manifests of Secrets; - is standard input',
  schema: path,
};
const ID = 'its id, the reference number of its e-mail, or the id of its account';
const id = z.string().trim().max(TEXT_MAX, 'It is too long.');
export const requestId: Positional = { syntax: '<REQUEST_ID>', about: ID, schema: id };
export const requestIdOrAddress: Positional = {
  syntax: '<REQUEST_ID>',
  about: `${ID}, or the e-mail address of its applicant`,
  schema: id,
};
export const foundId: Positional = {
  syntax: '<ID>',
  about: 'of a request or an account, as "audit" lists it',
  schema: id,
};
export const maybeRequestId: Positional = { ...requestId, syntax: '[REQUEST_ID]' };
export const address: Positional = {
  syntax: '<ADDRESS>',
  about: 'the right e-mail address',
  schema: givenFields.email,
};
export const partner: Positional = {
  syntax: '<PARTNER>',
  about: 'name of the partner',
  schema: z
    .string()
    .refine(
      isPartnerId,
      'It must be 1 to 63 letters, digits, ".", "_" or "-", as a Kubernetes label.',
    ),
};
export const keyId: Positional = {
  syntax: '<KEY>',
  about: 'id that "keys list" shows',
  schema: z
    .string()
    .toLowerCase()
    .regex(
      new RegExp(`^[0-9a-f]{${KEY_ID_LENGTH},64}$`),
      `It must be the ${KEY_ID_LENGTH} hexadecimal digits that "keys list" shows, or more of the SHA-256.`,
    ),
};
