/** Creates the HTTP server of the partner port. */
import { createServer } from 'node:http';
import { fastify, type FastifyInstance } from 'fastify';
import { newId } from '../platform/ids.ts';
import { addressTest } from '../platform/networks.ts';
import { hopReader, type ClientHeader } from './client-address.ts';
import { Connections } from './connections.ts';
import { addHooks, type HookTools } from './hooks.ts';
import type { LimitSettings } from './limit-policy.ts';
import { addRoutes, routedUrl, type RouteTools } from './routes.ts';

const HEADERS_TIMEOUT_MS = 10_000;
/** Longer than our own bounds, so that the request is recorded. */
const REQUEST_TIMEOUT_MS = 30_000;
/** With Node's default of 30 s, a bound of 10 s would become 40. */
const CONNECTIONS_CHECK_MS = 1_000;
const MAX_HEADER_BYTES = 16 * 1024;

type ServerTools = Omit<HookTools & RouteTools, 'readHop' | 'clientHeader'>;

interface ServerSettings extends LimitSettings {
  readonly keepAliveSeconds: number;
  readonly trustedProxies: readonly string[];
  readonly clientHeader: ClientHeader;
}

export async function createIngestServer(
  settings: ServerSettings,
  tools: ServerTools,
): Promise<FastifyInstance> {
  const readHop = hopReader(addressTest(settings.trustedProxies));
  const connections = new Connections(readHop, tools);
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
  // The handler reads the bytes, whatever the Content-Type.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, done) => done(null));
  app.addHook('preClose', () => connections.close());
  addHooks(app, { ...tools, readHop, clientHeader: settings.clientHeader });
  await addRoutes(app, settings, tools);
  return app;
}
