/** The OpenAPI document passes a linter and says what the code does, as the contract page. */
import { expect, test } from '@jest/globals';
import { createConfig, lintFromString } from '@redocly/openapi-core';
import { Spectral, type RulesetDefinition } from '@stoplight/spectral-core';
import { oas } from '@stoplight/spectral-rulesets';
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { ROOT } from '../../tools/root.ts';
import { EMAIL_MAX } from '../application/fields.ts';
import { parseApplication, hintCodes } from '../application/parse-application.ts';
import { partnerReasonCodes, reasonsForPartner } from '../application/reasons.ts';
import { lateBounce, type TestEnding, testEndings } from '../application/sandbox-endings.ts';
import {
  BASE_PATH,
  helpLinks,
  INGEST_PATH,
  LIST_PATH,
  listQuery,
  openApiDocument,
  OUTCOMES_PATH,
  outcomesQuery,
  queryFault,
  requestId,
  STATUS_PATH,
  statusMessages,
} from './contract.ts';
import { ACCEPTED_MESSAGE, errors, listQueryInvalid, tooManyRequests } from './errors.ts';
import { readIdempotencyKey } from './idempotency-key.ts';
import {
  DRAIN_MAX_BYTES,
  DRAIN_MAX_MS,
  MAX_BODY_BYTES,
  MAX_WAIT_SECONDS,
  RETRY_AFTER_SECONDS,
} from './bounds.ts';

/** Each test looks deep into another part. */
// oxlint-disable-next-line typescript/no-explicit-any -- the shape is that of OpenAPI
type Part = any;

const settings = { rateLimitMax: 7, rateLimitWindowSeconds: 11, statusEndpoint: true };
const document = openApiDocument(settings) as Part;
const { paths, components } = document;
const link = helpLinks(document);
const operations = Object.values<Part>(paths).flatMap((methods) => Object.values<Part>(methods));
const [submit, lookUp, list, outcomes] = operations;
const responses = operations.flatMap(({ responses: all }) => Object.entries<Part>(all));
const examples = responses.flatMap(([status, { content }]) =>
  Object.entries<Part>(content['application/json'].examples ?? {}).map(
    ([name, { value }]) => `${name}: ${status} ${value.error}`,
  ),
);
const page = readFileSync(`${ROOT}docs/contract.md`, 'utf8');

const limit = { amount: '7', windowSeconds: 11, whose: 'one address' } as const;
const known = Object.entries({
  ...errors,
  listQueryInvalid: {
    status: 400,
    error: listQueryInvalid(queryFault(listQuery, { since: 'today' })!),
  },
  tooManyRequests: { status: 429, error: tooManyRequests(limit, 11) },
});
const set = (texts: readonly string[]): string[] => [...new Set(texts)].toSorted();

test.each([true, false])(
  'Redocly and Spectral find no fault in the document (look-ups: %s)',
  async (statusEndpoint) => {
    const source = JSON.stringify(openApiDocument({ ...settings, statusEndpoint }));
    const faults = await lintFromString({
      source,
      absoluteRef: 'openapi.json',
      config: await createConfig({ extends: ['recommended-strict'] }),
    });
    expect(
      faults.map(({ ruleId, message, location }) => [ruleId, message, location[0]?.pointer]),
    ).toEqual([]);
    const spectral = new Spectral();
    spectral.setRuleset(oas as RulesetDefinition);
    const found = await spectral.run(source);
    expect(found.map(({ code, message, path }) => [code, message, path.join('/')])).toEqual([]);
  },
);

test.each<[path: string, status: number, place: string]>([
  [INGEST_PATH, 422, '/paths/~1capital~1ingest/post/responses/422'],
  [`${INGEST_PATH}/req_1`, 404, '/paths/~1capital~1ingest~1{request_id}/get/responses/404'],
  [OUTCOMES_PATH, 503, '/paths/~1capital~1outcomes/get/responses/503'],
  [INGEST_PATH, 404, '/paths/~1capital~1ingest/post'],
  ['/favicon.ico', 404, '/paths'],
])('an answer to %s %i links to its place', (path, status, place) => {
  const [, pointer = ''] = /^<.*openapi\.json#(.*)>; rel="help"$/.exec(link(path, status)) ?? [];
  expect(decodeURIComponent(pointer)).toBe(place);
  const steps = place
    .split('/')
    .slice(1)
    .map((step) => step.replaceAll('~1', '/'));
  expect(steps.reduce((part: Part, step) => part[step], document)).toBeDefined();
});

test('without look-ups nothing of them is left', () => {
  const text = JSON.stringify(openApiDocument({ ...settings, statusEndpoint: false }));
  expect(text).not.toMatch(/lookUp|listSubmissions|outcomes|location|PreferenceApplied|503/i);
});

test('the document lists exactly the errors of the code', () => {
  expect(set(examples)).toEqual(
    set(known.map(([name, { status, error }]) => `${name}: ${status} ${error}`)),
  );
});

test('the contract page lists exactly the errors of the code', () => {
  const rows = [...page.matchAll(/:\s+(\d{3})\s+`\{"error":"([^"]+)"/g)].map(
    ([, status, error]) => `${status} ${error}`,
  );
  const told = set(known.map(([, { status, error }]) => `${status} ${error}`));
  expect(set(rows)).toEqual(told.map((error) => error.replace(/^(429 [^:]+: ).*/, '$1…')));
});

/** Answers without a read name no cache. */
const readsOf = new Set(['requestUnknown', 'statusUnavailable', 'listQueryInvalid']);
test.each(responses.filter(([status]) => !status.startsWith('2')))(
  'an answer %s has its headers, and a body and a link by what is recorded',
  (status, { headers, content, links }) => {
    const own: Record<string, string> = {
      401: 'WWW-Authenticate',
      405: 'Allow',
      429: 'Retry-After',
      500: 'Retry-After',
      503: 'Retry-After',
    };
    const { schema, examples: named = {} } = content['application/json'];
    // A wrong method belongs to no operation, and a slow head to none yet.
    const counted = !['405', '408'].includes(status);
    const counts = ['Limit', 'Remaining', 'Reset'].map((name) => `X-RateLimit-${name}`);
    expect(Object.keys(headers)).toEqual([
      'X-Request-Id',
      'Test-Submission',
      ...(own[status] === undefined ? [] : [own[status]]),
      ...(counted ? counts : []),
      ...(Object.keys(named).some((name) => readsOf.has(name)) ? ['Cache-Control'] : []),
      'Link',
    ]);
    const recorded = Object.values<Part>(named).map(({ value }) => value.data !== undefined);
    expect(
      set((schema.anyOf ?? [schema]).map(({ $ref }: Part) => $ref.replace(/.*\//, ''))),
    ).toEqual(set(recorded.map((isRecorded) => (isRecorded ? 'Malformed' : 'Error'))));
    expect(links !== undefined).toBe(recorded.includes(true));
  },
);

test('the document has the paths, parameters, states and texts of the code', () => {
  const { servers } = document;
  expect(servers.map(({ url }: Part) => url)).toEqual([`https://{host}${BASE_PATH}`]);
  expect(Object.keys(paths).map((path) => BASE_PATH + path.replace(/\{(\w+)\}/, ':$1'))).toEqual([
    INGEST_PATH,
    STATUS_PATH,
    LIST_PATH,
    OUTCOMES_PATH,
  ]);
  const stateRef = { $ref: '#/components/schemas/State' };
  const { properties = {} } = z.toJSONSchema(listQuery, { io: 'input' });
  expect(list.parameters.map(({ name, schema }: Part) => [name, schema])).toMatchObject(
    Object.entries({ ...properties, state: { anyOf: [stateRef, { const: '' }] } }),
  );
  const followed = z.toJSONSchema(outcomesQuery, { io: 'input' }).properties ?? {};
  expect(
    outcomes.parameters.flatMap(({ in: place, name, schema }: Part) =>
      place === 'query' ? [[name, schema]] : [],
    ),
  ).toMatchObject(Object.entries(followed));
  const statuses = Object.entries(statusMessages);
  const $ref = '#/components/schemas/Entry';
  expect(components.schemas).toMatchObject({
    RequestId: { pattern: z.toJSONSchema(requestId).pattern },
    Accepted: { properties: { message: { examples: [ACCEPTED_MESSAGE] } } },
    State: {
      enum: Object.keys(statusMessages),
      description: statuses.map(([name, message]) => `- \`${name}\`: ${message}.`).join('\n'),
    },
    Reason: { properties: { code: { enum: partnerReasonCodes } } },
    Hint: { properties: { code: { enum: hintCodes } } },
    // Generated clients have one type of each.
    Entry: {
      properties: {
        state: stateRef,
        reasons: { items: { $ref: '#/components/schemas/Reason' } },
      },
    },
    Status: { properties: { data: { $ref } } },
    Submissions: { properties: { data: { properties: { submissions: { items: { $ref } } } } } },
    Outcomes: { properties: { data: { properties: { outcomes: { items: { $ref } } } } } },
  });
});

test('the document has the bounds of the code', () => {
  expect(document.info.description).toContain('At most 7 requests in 11 seconds');
  expect(submit.description).toContain(`at most ${MAX_BODY_BYTES} bytes`);
  expect(submit.description).toContain(
    `at most ${DRAIN_MAX_BYTES / 2 ** 20} MiB are read, for at most ${DRAIN_MAX_MS / 1_000} seconds`,
  );
  for (const { parameters } of [lookUp, outcomes])
    expect(parameters.find(({ name }: Part) => name === 'Prefer').description).toContain(
      `at most ${MAX_WAIT_SECONDS}.`,
    );
  expect(components).toMatchObject({
    headers: {
      RetryAfter: { schema: { maximum: 3_600 } },
      RetryLater: { schema: { const: RETRY_AFTER_SECONDS } },
    },
    schemas: { Application: { properties: { email: { maxLength: EMAIL_MAX } } } },
  });
  const { IdempotencyKey, Application } = components.schemas;
  const { business_name: name, ein } = Application.properties;
  for (const length of [0, 1, 255, 256])
    for (const key of ['k'.repeat(length), `"${' '.repeat(length)}"`])
      expect(new RegExp(IdempotencyKey.pattern).test(key)).toBe(
        readIdempotencyKey(key).kind === 'given',
      );
  for (const length of [0, 1, name.maxLength, name.maxLength + 1])
    for (const digits of ['12345678', '123456789', '1234567890']) {
      const business_name = 'A'.repeat(length);
      const application = { email: 'ada@example.com', business_name, ein: digits };
      expect(parseApplication(Buffer.from(JSON.stringify(application))).valid).toBe(
        length > 0 && length <= name.maxLength && new RegExp(ein.pattern).test(digits),
      );
    }
});

const codeOf = ({ reason }: TestEnding): string | undefined =>
  reasonsForPartner(reason === undefined ? [] : [reason])[0]?.code;

/** What both must say of an ending. */
function wordsOf(ein: string, ending: TestEnding): string[] {
  const { answer, undeliverable, waitsMs, attempts, holdsMs, fault } = ending;
  const code = codeOf(ending);
  if (code !== undefined) return ['`rejected`', `\`${code}\``];
  if (undeliverable) return ['`undeliverable`', '`unknown_mailbox`'];
  if (waitsMs !== undefined)
    return ['`processing`', waitsMs === 60_000 ? 'for a minute' : 'for an hour', '`completed`'];
  if (ein === lateBounce.ein) return ['one to two minutes after `completed`'];
  if (attempts !== undefined) return ['first two attempts', 'then 202', '`completed`'];
  if (holdsMs !== undefined) return ['30 s', 'for a minute 202', '`completed`'];
  if (fault !== undefined) return ['`not_accepted`'];
  if (answer === 'none') return ['cut off after acceptance', 'is answered 202'];
  return [answer === 202 ? '`completed`' : 'nothing is recorded'];
}

test('the document and the contract page have every test ending with its answer and outcome', () => {
  const { description } = components.securitySchemes.apiKey;
  const rows = [...description.matchAll(/^\| `(\d+)` \| (\w+) \| (.*) \|$/gm)].map(
    ([, ...row]) => row,
  );
  const endings = [...testEndings].map(([ein, { answer }]) => [ein, `${answer}`] as const);
  expect(rows.map((row) => row.slice(0, 2))).toEqual(endings);
  const lacking = (ein: string, text: string | undefined): string[] =>
    wordsOf(ein, testEndings.get(ein)!).filter((words) => !text?.includes(words));
  expect(rows.map(([ein, , text]) => [ein, lacking(ein, text)])).toEqual(
    rows.map(([ein]) => [ein, []]),
  );
  const [accepted = '', otherwise = ''] = /\n## Test keys\n([^]*?)\n## /
    .exec(page)![1]!
    .split('Answered otherwise');
  const itemsWith = (text: string, ein: string) =>
    [...text.matchAll(/^- ([^:]*): ([^]*?)(?=\n- |\n\n)/gm)].filter(([, of]) => of!.includes(ein));
  for (const [ein, answer] of endings) {
    const [item, ...more] = itemsWith(answer === '202' ? accepted : otherwise, ein);
    expect([ein, more]).toEqual([ein, []]);
    expect([ein, lacking(ein, item?.[2]?.replaceAll(/\s+/g, ' '))]).toEqual([ein, []]);
    if (answer !== '202') expect(item?.[2]).toContain(answer === 'none' ? 'cut off' : answer);
  }
  // Of an item with several, in their order.
  const codes = Object.groupBy(
    endings.flatMap(([ein]) => {
      const code = codeOf(testEndings.get(ein)!);
      const [item] = itemsWith(accepted, ein);
      return code === undefined ? [] : [{ item: item![0], at: item![1]!.indexOf(ein), code }];
    }),
    ({ item }) => item,
  );
  for (const [item, all = []] of Object.entries(codes))
    expect(all.toSorted((one, other) => one.at - other.at).map(({ code }) => code)).toEqual(
      [...item.matchAll(/`([a-z]+(?:_[a-z]+)?)`/g)].map(([, code]) => code).slice(1),
    );
});
