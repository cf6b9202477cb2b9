/** Routes requests to operations and answers all others. */
import { createServer, type IncomingMessage } from 'node:http';
import { fastify, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { newId } from '../platform/stores/ids.ts';
import type { Clock } from '../platform/process/clock.ts';
import type { Logger } from '../platform/process/log.ts';
import { addressTest } from '../platform/http/networks.ts';
import type { HintOutbox } from '../queue/enqueue.ts';
import type { GroupCommit } from '../submission/group-commit.ts';
import type { OverLimitRecorder } from '../submission/over-limit.ts';
import type { Withdrawals } from '../submission/withdrawals.ts';
import type { IngestMetrics, PartnerLabels } from '../telemetry/metrics.ts';
import type { KeyTools } from './authenticate.ts';
import { type ClientHeader, hopReader } from './client-address.ts';
import { Connections } from './connections.ts';
import {
  helpLinks,
  INGEST_PATH,
  JWKS_PATH,
  LIST_PATH,
  OPENAPI_PATH,
  type OpenApiDocument,
  OUTCOMES_PATH,
  STATUS_PATH,
} from './contract.ts';
import { answerEarly, type ErrorAnswer, errors, sendEarly } from './errors.ts';
import { addHooks, logFields, type HookTools } from './hooks.ts';
import { Limits, type LimitSettings, OverLimit } from './limit-policy.ts';
import {
  answerRead,
  authenticateLookUp,
  followOutcomes,
  listSubmissions,
  lookUpStatus,
  type LookUpTools,
} from './look-up-status.ts';
import type { SharedLimiterStore } from './rate-limit.ts';
import { OutageLog, Refusals } from './refusals.ts';
import { authenticateOrAnswer, submitApplication, type SubmitTools } from './submit-application.ts';

/** What the partner port needs; each file of this room says what it takes of it. */
interface IngestTools {
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: IngestMetrics;
  /** Nobody reads them: a test counts in no metric of live submissions. */
  readonly metricsOfTests: IngestMetrics;
  readonly partnerLabels: PartnerLabels;
  readonly traffic: HookTools['traffic'];
  /** Aborts when the process drains. */
  readonly drain: AbortSignal;
  readonly keys: KeyTools['keys'];
  readonly limiter: SharedLimiterStore;
  readonly overLimit: Pick<OverLimitRecorder, 'add'>;
  readonly commits: Pick<GroupCommit, 'record'>;
  readonly withdrawals: Pick<Withdrawals, 'add'>;
  readonly hints: Pick<HintOutbox, 'add'>;
  readonly retention: SubmitTools['retention'];
  /** Undefined where look-ups are switched off. */
  readonly lookUps: Pick<LookUpTools, 'statuses' | 'outcomes' | 'counts'> | undefined;
  /** For partners; undefined where it is switched off. */
  readonly openApi: OpenApiDocument | undefined;
  /** Undefined where no keys are given. */
  readonly receipts: SubmitTools['receipts'];
  /** The JWK set of the keys that sign receipts, if there are any. */
  readonly receiptKeys: object | undefined;
}

export async function addRoutes(
  app: FastifyInstance,
  settings: LimitSettings,
  tools: IngestTools,
): Promise<void> {
  const limits = new Limits(settings, tools);
  await limits.register(app);
  const lookUps = tools.lookUps !== undefined;
  const outages = new OutageLog(tools);
  const refusals = new Refusals(tools);
  const submitTools = { ...tools, limits, lookUps, outages, refusals };
  const testTools = { ...submitTools, metrics: tools.metricsOfTests };
  // The plugin appends the limiter to onRequest; the key is checked later, so that guessing is
  // limited too.
  app.route({
    method: 'POST',
    url: INGEST_PATH,
    config: { rateLimit: limits.submissions },
    preParsing: (request, reply, _payload, proceed) => {
      if (!authenticateOrAnswer(request, reply, submitTools)) return;
      const admission = limits.admitRequest(request);
      if (admission === undefined) proceed(null);
      else admission.then(() => proceed(null), proceed);
    },
    handler: (request, reply) =>
      submitApplication(request, reply, request.terms.test ? testTools : submitTools),
  });

  if (tools.lookUps !== undefined) {
    const lookUpTools: LookUpTools = { ...tools, ...tools.lookUps, limits };
    for (const [url, read] of [
      [STATUS_PATH, lookUpStatus],
      [LIST_PATH, listSubmissions],
      [OUTCOMES_PATH, followOutcomes],
    ] as const) {
      app.route({
        method: ['GET', 'HEAD'],
        url,
        config: { rateLimit: limits.lookUps },
        preParsing: (request, reply, _payload, done) => {
          if (authenticateLookUp(request, reply, lookUpTools)) done(null);
        },
        handler: (request, reply) => answerRead(read, request, reply, lookUpTools),
      });
    }
  }

  const documents = [
    [OPENAPI_PATH, tools.openApi, 'application/json; charset=utf-8', OPENAPI_CACHED],
    [JWKS_PATH, tools.receiptKeys, 'application/jwk-set+json', JWKS_CACHED],
  ] as const;
  const served = documents.filter(([, document]) => document !== undefined);
  for (const document of served) addDocument(app, document, limits);

  const isRead = (path: string): boolean =>
    (lookUps && readPath.test(path)) || served.some(([url]) => path === url);
  app.setNotFoundHandler((request, reply) => notFound(request, reply, isRead));
  app.setErrorHandler((error, request, reply) => {
    if (error instanceof OverLimit) {
      reply.header('retry-after', error.retrySeconds);
      sendEarly(request, reply, 429, { error: error.message });
      return;
    }
    tools.log.error({ ...logFields(request), err: error }, 'request failed');
    answerEarly(request, reply, errors.internal);
  });
}

/** Serves a document to all, without a key. */
function addDocument(
  app: FastifyInstance,
  [url, document, type, cached]: readonly [string, object | undefined, string, string],
  limits: Limits,
): void {
  const text = JSON.stringify(document);
  app.route({
    method: ['GET', 'HEAD'],
    url,
    config: { rateLimit: limits.lookUps },
    handler: (request, reply) => {
      reply.header('cache-control', cached).type(type);
      sendEarly(request, reply, 200, text);
    },
  });
}

/**
 * Removes the origin of an absolute URL (RFC 9112 §3.2.2). Fastify would answer an undecodable path
 * without hooks.
 */
function routedUrl(request: IncomingMessage): string {
  if (request.url === INGEST_PATH) return INGEST_PATH;
  const url = (request.url ?? '/').replace(/^https?:\/\/[^/?#]*/i, '');
  try {
    decodeURI(url.split('?', 1)[0] ?? '');
    return url;
  } catch {
    return '/';
  }
}

/** It changes with a version or a setting. */
const OPENAPI_CACHED = 'public, max-age=3600';
/** A new key is published a day before it signs. */
const JWKS_CACHED = 'public, max-age=300';
const readPath = new RegExp(`^(${INGEST_PATH}/[^/]+|${LIST_PATH}|${OUTCOMES_PATH})$`);

function notFound(
  request: FastifyRequest,
  reply: FastifyReply,
  isRead: (path: string) => boolean,
): void {
  const path = request.url.split('?', 1)[0] ?? '';
  const isGet = request.method === 'GET' || request.method === 'HEAD';
  let answer: ErrorAnswer = errors.notFound;
  if (path === INGEST_PATH) {
    answer = errors.methodNotAllowed;
    reply.header('allow', 'POST');
  } else if (!isGet && isRead(path)) {
    answer = errors.statusMethodNotAllowed;
    reply.header('allow', 'GET, HEAD');
  }
  answerEarly(request, reply, answer);
}

/* Creates the HTTP server of the partner port. */

const HEADERS_TIMEOUT_MS = 10_000;
/** Longer than our own bounds, so that the request is recorded. */
const REQUEST_TIMEOUT_MS = 30_000;
/** With Node's default of 30 s, a bound of 10 s would become 40. */
const CONNECTIONS_CHECK_MS = 1_000;
const MAX_HEADER_BYTES = 16 * 1024;

interface ServerSettings extends LimitSettings {
  readonly keepAliveSeconds: number;
  readonly trustedProxies: readonly string[];
  readonly clientHeader: ClientHeader;
}

export async function createIngestServer(
  settings: ServerSettings,
  tools: IngestTools,
): Promise<FastifyInstance> {
  const readHop = hopReader(addressTest(settings.trustedProxies));
  const help = tools.openApi && helpLinks(tools.openApi);
  const connections = new Connections(readHop, { ...tools, help });
  const options = {
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: settings.keepAliveSeconds * 1_000,
    headersTimeout: HEADERS_TIMEOUT_MS,
    connectionsCheckingInterval: CONNECTIONS_CHECK_MS,
    maxHeaderSize: MAX_HEADER_BYTES,
    // Node would answer without a body.
    requireHostHeader: false,
  };
  const app = fastify({
    logger: false,
    genReqId: () => newId('req', tools.clock.now()),
    requestIdHeader: false,
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    exposeHeadRoutes: false,
    // Fastify makes no second server then: of the addresses of a name, the first is served.
    serverFactory: (handler) => connections.watch(createServer(options, handler)),
    clientErrorHandler: () => {},
    rewriteUrl: routedUrl,
    // A long id is an unknown id, not an unknown path.
    routerOptions: { maxParamLength: MAX_HEADER_BYTES },
  });
  // The handler reads the bytes of a body, whatever its Content-Type.
  for (const method of app.supportedMethods)
    app.addHttpMethod(method, { hasBody: false, overrideExisting: true });
  app.addHook('preClose', () => connections.close());
  addHooks(app, { ...tools, help, readHop, clientHeader: settings.clientHeader });
  await addRoutes(app, settings, tools);
  return app;
}
