/** The contract as an OpenAPI 3.1 document, generated from the code. */
import { z } from 'zod';
import { applicationSchema } from '../application/parse-application.ts';
import {
  BASE_PATH,
  INGEST_PATH,
  LIST_PATH,
  STATUS_PATH,
  acceptedBody,
  errorBody,
  malformedBody,
  EXAMPLE_ID,
  idempotencyKey,
  listBody,
  listQuery,
  requestId,
  statusBody,
  testEndingsTable,
} from './contract.ts';
import { errors, every, tooManyRequests, type KnownError, type OperationName } from './errors.ts';
import {
  MAX_BODY_BYTES,
  MAX_WAIT_SECONDS,
  PARTNER_DAY_SECONDS,
  RETRY_AFTER_SECONDS,
} from './limits.ts';

export interface OpenApiSettings {
  readonly rateLimitMax: number;
  readonly rateLimitWindowSeconds: number;
  readonly statusEndpoint: boolean;
}

type Json = Record<string, unknown>;

const schemas: Readonly<Record<string, z.ZodType>> = {
  RequestId: requestId,
  IdempotencyKey: idempotencyKey,
  Application: applicationSchema,
  Accepted: acceptedBody,
  Malformed: malformedBody,
  Error: errorBody,
  Status: statusBody,
  Submissions: listBody,
};

export function openApiDocument(settings: OpenApiSettings): Json {
  const limit = `${settings.rateLimitMax} requests in ${settings.rateLimitWindowSeconds} seconds from one address`;
  return {
    openapi: '3.1.1',
    info: {
      title: 'Partner application ingest',
      version: 'v1',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      description:
        'Accepts new business applications from partners for asynchronous processing. Every answer is JSON and carries ' +
        `\`X-Request-Id\`. At most ${limit}, counted for each operation. Any other path is answered 404.`,
    },
    servers: [
      {
        url: `https://{host}${BASE_PATH}`,
        variables: {
          host: { default: 'ingest.example', description: "The operator's host name." },
        },
      },
    ],
    security: [{ apiKey: [] }],
    paths: {
      [pathOf(INGEST_PATH)]: { post: submitApplication(settings) },
      ...(settings.statusEndpoint
        ? {
            [pathOf(STATUS_PATH)]: { get: lookUpStatus(settings) },
            [pathOf(LIST_PATH)]: { get: listSubmissions(settings) },
          }
        : {}),
    },
    components: {
      securitySchemes: { apiKey: apiKeyScheme },
      headers: {
        RequestId: {
          description: 'Id of this request, or of the first one with its `Idempotency-Key`.',
          required: true,
          schema: ref('schemas', 'RequestId'),
        },
        IdempotentReplayed: {
          description:
            'Present where an earlier request with this `Idempotency-Key` and body was accepted; all ids are its own.',
          schema: { type: 'string', const: 'true' },
        },
        ...(settings.statusEndpoint ? lookUpHeaders : {}),
        RetryAfter: {
          description: 'Seconds to wait.',
          required: true,
          schema: { type: 'integer', minimum: 1, maximum: PARTNER_DAY_SECONDS },
        },
        RetryLater: {
          description: 'Seconds to wait before the next try.',
          required: true,
          schema: { type: 'integer', const: RETRY_AFTER_SECONDS },
        },
        ...rateLimitHeaders,
        Allow: {
          description: 'The methods there are.',
          required: true,
          schema: { type: 'string' },
        },
        WwwAuthenticate: { required: true, schema: { type: 'string', const: 'Bearer' } },
      },
      schemas: jsonSchemas(settings.statusEndpoint),
    },
  };
}

const apiKeyScheme: Json = {
  type: 'http',
  scheme: 'bearer',
  description:
    "The partner's API key. One that begins `pik_test_` is for tests: nothing is real, and `ein` chooses the " +
    `outcome of a submission whose fields are valid.\n\n${testEndingsTable}`,
};

function submitApplication(settings: OpenApiSettings): Json {
  return {
    operationId: 'submitApplication',
    summary: 'Submit an application',
    description:
      `The body is a JSON object of at most ${MAX_BODY_BYTES} bytes, whatever its Content-Type. Its fields are not checked ` +
      'at submission but in the background, so clients should validate them before sending. After a 202 the client does ' +
      'not send the same submission again. Of a body that is too large at most 16 MiB are read, for at most 5 seconds; ' +
      'then it is answered and the connection closed.',
    parameters: [
      { name: 'Idempotency-Key', in: 'header', schema: ref('schemas', 'IdempotencyKey') },
    ],
    requestBody: {
      required: true,
      content: { 'application/json': { schema: ref('schemas', 'Application') } },
    },
    responses: {
      202: {
        description: 'The submission is recorded and queued.',
        headers: {
          'X-Request-Id': ref('headers', 'RequestId'),
          'Idempotent-Replayed': ref('headers', 'IdempotentReplayed'),
          ...(settings.statusEndpoint ? { Location: ref('headers', 'Location') } : {}),
          ...rateLimitRefs,
        },
        content: { 'application/json': { schema: ref('schemas', 'Accepted') } },
        ...linkToStatus(settings),
      },
      ...errorResponses('submitApplication', settings),
    },
  };
}

function lookUpStatus(settings: OpenApiSettings): Json {
  return {
    operationId: 'lookUpStatus',
    'x-extension': true,
    summary: 'Look up the state of a request (extension)',
    description:
      'An extension of the contract that operators can switch off. Tells the state of a request of this partner; HEAD is ' +
      'answered the same without the body. Look-ups are not recorded as requests. A submission answered 500 is not ' +
      'accepted, whatever is shown here for the moment: submit it again.',
    parameters: [
      { name: 'request_id', in: 'path', required: true, schema: ref('schemas', 'RequestId') },
      {
        name: 'Prefer',
        in: 'header',
        description: `\`wait=N\` (RFC 7240) answers once the state is final, at the latest after N seconds, at most ${MAX_WAIT_SECONDS}.`,
        schema: { type: 'string', examples: ['wait=30'] },
      },
    ],
    responses: {
      200: {
        description: 'The state of the request.',
        headers: {
          'X-Request-Id': ref('headers', 'RequestId'),
          'Preference-Applied': ref('headers', 'PreferenceApplied'),
          ...rateLimitRefs,
        },
        content: { 'application/json': { schema: ref('schemas', 'Status') } },
      },
      ...errorResponses('lookUpStatus', settings),
    },
  };
}

function listSubmissions(settings: OpenApiSettings): Json {
  const { properties = {} } = z.toJSONSchema(listQuery, { io: 'input' });
  return {
    operationId: 'listSubmissions',
    'x-extension': true,
    summary: 'List the requests of this partner (extension)',
    description:
      'An extension of the contract that operators can switch off. Every request that was recorded for this partner, ' +
      'newest first, at most 100 on a page, without personal data; HEAD is answered the same without the body. A page ' +
      'may be short, or empty, although there are more: go on while there is a `next_cursor`. What arrives meanwhile ' +
      'changes no later page.',
    parameters: Object.entries(properties).map(([name, schema]) => ({ name, in: 'query', schema })),
    responses: {
      200: {
        description: 'A page of requests.',
        headers: { 'X-Request-Id': ref('headers', 'RequestId'), ...rateLimitRefs },
        content: { 'application/json': { schema: ref('schemas', 'Submissions') } },
      },
      ...errorResponses('listSubmissions', settings),
    },
  };
}

const lookUpHeaders: Json = {
  Location: {
    description: 'Where the state of the submission can be looked up.',
    schema: { type: 'string', format: 'uri-reference' },
  },
  PreferenceApplied: {
    description: 'Absent if the answer did not wait, although it was asked to.',
    schema: { type: 'string' },
  },
};

function errorResponses(operation: OperationName, settings: OpenApiSettings): Json {
  const { rateLimitMax, rateLimitWindowSeconds: windowSeconds } = settings;
  const limit = { amount: `${rateLimitMax}`, windowSeconds, whose: 'one address' } as const;
  const all: Readonly<Record<string, KnownError>> = {
    ...errors,
    tooManyRequests: {
      status: 429,
      error: tooManyRequests(limit, windowSeconds),
      when: 'Too many requests from one address, or more than the operator allows this partner; `Retry-After` says how long to wait.',
      of: every,
    },
  };
  const ofOperation = Object.entries(all).filter(([, { of }]) => of.includes(operation));
  const byStatus = Map.groupBy(ofOperation, ([, { status }]) => status);
  return Object.fromEntries(
    [...byStatus].map(([status, named]) => [
      status,
      {
        description: named.map(([, { when }]) => when).join('\n\n'),
        headers: {
          'X-Request-Id': ref('headers', 'RequestId'),
          ...headersOf[status],
          ...(uncounted.includes(status) ? {} : rateLimitRefs),
        },
        content: contentOf(named),
        ...(named.some(([, { isRecorded }]) => isRecorded) ? linkToStatus(settings) : {}),
      },
    ]),
  );
}

/** A wrong method belongs to no operation, and a slow head to none yet, so neither is counted. */
const uncounted: readonly number[] = [405, 408];

/** Absent if the answer is certain before counting. */
const rateLimitHeaders: Json = {
  RateLimit: {
    description: 'Requests one address may make in a window.',
    schema: { type: 'integer' },
  },
  RateLimitRemaining: {
    description: 'How many of them are left.',
    schema: { type: 'integer', minimum: 0 },
  },
  RateLimitReset: {
    description: 'Seconds until the window ends.',
    schema: { type: 'integer', minimum: 0 },
  },
};
const rateLimitRefs: Json = {
  'X-RateLimit-Limit': ref('headers', 'RateLimit'),
  'X-RateLimit-Remaining': ref('headers', 'RateLimitRemaining'),
  'X-RateLimit-Reset': ref('headers', 'RateLimitReset'),
};

const headersOf: Readonly<Record<number, Json>> = {
  401: { 'WWW-Authenticate': ref('headers', 'WwwAuthenticate') },
  405: { Allow: ref('headers', 'Allow') },
  429: { 'Retry-After': ref('headers', 'RetryAfter') },
  500: { 'Retry-After': ref('headers', 'RetryLater') },
  503: { 'Retry-After': ref('headers', 'RetryLater') },
};

function contentOf(named: readonly (readonly [string, KnownError])[]): Json {
  const bodies = new Set(named.map(([, { isRecorded }]) => (isRecorded ? 'Malformed' : 'Error')));
  const refs = [...bodies].map((name) => ref('schemas', name));
  const examples = named.map(([name, { when: summary, error, isRecorded }]) => {
    const data = isRecorded ? { data: { request_id: EXAMPLE_ID } } : {};
    return [name, { summary, value: { error, ...data } }] as const;
  });
  return {
    'application/json': {
      schema: refs.length === 1 ? refs[0] : { anyOf: refs },
      examples: Object.fromEntries(examples),
    },
  };
}

function linkToStatus(settings: OpenApiSettings): Json {
  const parameters = { request_id: '$response.body#/data/request_id' };
  return settings.statusEndpoint
    ? { links: { status: { operationId: 'lookUpStatus', parameters } } }
    : {};
}

/** The contract can grow, so input schemas allow further fields. */
function jsonSchemas(statusEndpoint: boolean): Json {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(schemas))
    if (statusEndpoint || !['Status', 'Submissions'].includes(id)) registry.add(schema, { id });
  const generated = z.toJSONSchema(registry, {
    io: 'input',
    uri: (id) => `#/components/schemas/${id}`,
  });
  return Object.fromEntries(
    Object.entries(generated.schemas).map(([id, { $schema: _dialect, $id: _id, ...schema }]) => [
      id,
      schema,
    ]),
  );
}

function ref(kind: 'schemas' | 'headers', name: string): Json {
  return { $ref: `#/components/${kind}/${name}` };
}

function pathOf(path: string): string {
  return path.slice(BASE_PATH.length).replace(/:(\w+)/g, '{$1}');
}
