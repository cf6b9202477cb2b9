/** The partners' contract: paths, states, parameters, and its OpenAPI document. */
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { z } from 'zod';
import { bodyFields } from '../application/fields.ts';
import { later } from '../platform/process/clock.ts';
import { MAX_IDEMPOTENCY_KEY } from './bounds.ts';

export const BASE_PATH = '/api/v1';
export const INGEST_PATH = `${BASE_PATH}/capital/ingest`;
export const STATUS_PATH = `${INGEST_PATH}/:request_id`;
export const LIST_PATH = `${BASE_PATH}/capital/submissions`;
export const OUTCOMES_PATH = `${BASE_PATH}/capital/outcomes`;
export const OPENAPI_PATH = `${BASE_PATH}/capital/openapi.json`;
export const JWKS_PATH = `${BASE_PATH}/capital/jwks.json`;

const REQUEST_ID = /^req_[0-7][0-9a-hjkmnp-tv-z]{25}$/;
export const requestId = z.string().regex(REQUEST_ID);

export const statusMessages = {
  processing: 'The application is being processed',
  completed: 'The account exists and the applicant has been e-mailed',
  rejected: 'The application was rejected for the reasons given',
  undeliverable: 'The account exists, but the e-mail to the applicant was refused for good',
  not_accepted: 'The request was answered with an error and is not processed',
} as const;
export type Status = keyof typeof statusMessages;
/** Replaces `statusMessages` for tests, where those would be untrue. */
export const testMessages: Partial<Record<Status, string>> = {
  completed: 'A test: the account would exist and the applicant would have been e-mailed',
  undeliverable:
    'A test: the account would exist, but the e-mail to the applicant would have been refused for good',
};

/** An empty parameter counts as absent. */
const parameter = (pattern: RegExp) =>
  z
    .string()
    .regex(new RegExp(`^$|${pattern.source}`))
    .optional();
/** RFC 3339; also a blank for a `+` that was not encoded. */
const time = /[Tt ](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?/.source;
const offset = /(?:[Zz]|[+ -](?:[01]\d|2[0-3]):[0-5]\d)/.source;
const date = z.regexes.date.source.replace(/^\^|\$$/g, '');
const pointInTime = new RegExp(`^${date}${time}${offset}$`);

/** Parses a `pointInTime`. A leap second becomes the first of the next minute. */
export function timeOf(text: string): Date {
  const iso = `${text.slice(0, 10)}T${text.slice(11)}`.toUpperCase().replace(' ', '+');
  const leaps = iso.startsWith(':60', 16);
  return later(new Date(leaps ? iso.replace(':60', ':59') : iso), leaps ? 1_000 : 0);
}

export const listQuery = z.strictObject({
  since: parameter(pointInTime),
  until: parameter(pointInTime),
  state: z.enum([...(Object.keys(statusMessages) as Status[]), '']).optional(),
  cursor: parameter(REQUEST_ID),
  idempotency_key: parameter(new RegExp(`^[ -~]{1,${MAX_IDEMPOTENCY_KEY}}$`)),
});

export const outcomesQuery = z.strictObject({
  since: parameter(pointInTime),
  cursor: parameter(/^out_[\w-]{10,200}$/),
});

const A_TIME = 'a time of RFC 3339, such as 2026-11-27T09:30:00Z';
const right: Record<keyof typeof listQuery.shape, string> = {
  since: A_TIME,
  until: A_TIME,
  state: `one of ${inWords(Object.keys(statusMessages))}`,
  cursor: 'a next_cursor that keys of this partner and mode were answered',
  idempotency_key: `1 to ${MAX_IDEMPOTENCY_KEY} characters of printable ASCII, without its quotes`,
};
const SHOWN = 100;

/** What is wrong with the first faulty parameter, and what would be right. */
export function queryFault(
  { shape }: typeof listQuery | typeof outcomesQuery,
  given: unknown,
): string | undefined {
  for (const [name, value] of Object.entries(given as Readonly<Record<string, unknown>>)) {
    if (!isOf(shape, name))
      return `${quoted(name)} is unknown: known are ${inWords(Object.keys(shape))}`;
    if (Array.isArray(value)) return `${name} must be given once`;
    if (!shape[name].safeParse(value).success) return valueFault(name, value);
  }
  return undefined;
}

export const valueFault = (name: keyof typeof right, value: unknown): string =>
  `${name} must be ${right[name]}, not ${quoted(String(value))}`;

const isOf = <Shape extends object>(shape: Shape, name: PropertyKey): name is keyof Shape =>
  Object.hasOwn(shape, name);

const quoted = (text: string): string =>
  `'${text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text}'`;

function inWords(names: readonly string[]): string {
  return `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;
}

interface OpenApiSettings {
  readonly rateLimitMax: number;
  readonly rateLimitWindowSeconds: number;
  readonly statusEndpoint: boolean;
}

interface Response {
  headers: Record<string, object>;
  readonly content: Record<string, { readonly examples?: Record<string, { summary: string }> }>;
  links?: object;
}

interface Operation {
  readonly responses: Record<string, Response>;
}

/** The parts of the document that this file changes. */
export interface OpenApiDocument {
  tags: readonly { readonly name: string }[];
  readonly paths: Record<string, Partial<Record<'get' | 'post', Operation>>>;
  readonly components: Readonly<Record<'headers' | 'schemas', Record<string, object>>>;
}

/** Schemas that the table of fields completes. */
interface FieldSchemas {
  readonly Application: object;
  readonly Reason: { readonly properties: { readonly field: object } };
}

/** `openapi.yaml` with the table of fields and the settings of this process. */
export function openApiDocument(settings: OpenApiSettings): OpenApiDocument {
  const text = readFileSync(new URL('openapi.yaml', import.meta.url), 'utf8')
    .replaceAll('$RATE_LIMIT_MAX', `${settings.rateLimitMax}`)
    .replaceAll('$RATE_LIMIT_WINDOW_SECONDS', `${settings.rateLimitWindowSeconds}`);
  const document = parse(text, { merge: true }) as OpenApiDocument;
  const fields = Object.values(bodyFields);
  const { Application, Reason } = document.components.schemas as unknown as FieldSchemas;
  Object.assign(Application, {
    properties: Object.fromEntries(
      fields.map(({ name, sample, schema }) => [
        name,
        { type: 'string', ...schema, examples: [sample] },
      ]),
    ),
    required: fields.map(({ name }) => name),
  });
  Object.assign(Reason.properties.field, { enum: fields.map(({ name }) => name) });
  for (const operation of Object.values(document.paths).flatMap((path) => Object.values(path)))
    describeErrors(operation);
  if (!settings.statusEndpoint) removeLookUps(document);
  return document;
}

/** Describes each error by the summaries of its examples, and says that it links to this place. */
function describeErrors({ responses }: Operation): void {
  for (const [status, response] of Object.entries(responses)) {
    if (Number(status) >= 400)
      response.headers = { ...response.headers, Link: { $ref: '#/components/headers/Help' } };
    const examples = Object.values(response.content['application/json']?.examples ?? {});
    if (examples.length === 0) continue;
    const description = examples.map(({ summary }) => summary).join('\n\n');
    responses[status] = { description, ...response } as Response;
  }
}

/**
 * Where the document explains an answer to a request for this path, as a header `Link` (RFC 8288).
 */
export function helpLinks({ paths }: Pick<OpenApiDocument, 'paths'>) {
  const places = Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, { responses }]) => ({
      pattern: new RegExp(`^${BASE_PATH}${path.replace(/\{\w+\}/, '[^/]+')}$`),
      at: `/paths/${encodeURIComponent(path.replaceAll('/', '~1'))}/${method}`,
      responses,
    })),
  );
  return (path: string, status: number): string => {
    const { at, responses } = places.find(({ pattern }) => pattern.test(path)) ?? {
      at: '/paths',
      responses: {},
    };
    const place = String(status) in responses ? `${at}/responses/${status}` : at;
    return `<${OPENAPI_PATH}#${place}>; rel="help"`;
  };
}
export type HelpLinks = ReturnType<typeof helpLinks>;

function removeLookUps(document: OpenApiDocument): void {
  const { paths, components } = document;
  delete paths['/capital/ingest/{request_id}'];
  delete paths['/capital/submissions'];
  delete paths['/capital/outcomes'];
  document.tags = document.tags.filter(({ name }) => name !== 'Look-ups');
  for (const name of ['State', 'Reason', 'Hint', 'Entry', 'Status', 'Submissions', 'Outcomes'])
    delete components.schemas[name];
  for (const name of ['Location', 'PreferenceApplied', 'CacheControl'])
    delete components.headers[name];
  for (const response of Object.values(paths['/capital/ingest']!.post!.responses)) {
    delete response.headers['Location'];
    delete response.links;
  }
}
