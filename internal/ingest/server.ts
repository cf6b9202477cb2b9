/** Creates the HTTP server of the partner port. */
import { fastify, type FastifyInstance } from 'fastify';
import { newId } from '../platform/ids.ts';
import { addressTest } from '../platform/networks.ts';
import { answerBroken } from './broken-http.ts';
import { clientFinder } from './client-address.ts';
import { watchConnections } from './connections.ts';
import { addHooks, type HookTools } from './hooks.ts';
import {
  CONNECTIONS_CHECK_MS,
  HEADERS_TIMEOUT_MS,
  MAX_HEADER_BYTES,
  REQUEST_TIMEOUT_MS,
} from './limits.ts';
import type { LimitSettings } from './limit-policy.ts';
import { addRoutes, routedUrl, type RouteTools } from './routes.ts';
import { newShares } from './shares.ts';

export type ServerTools = Omit<HookTools & RouteTools, 'findClient' | 'shares'>;

export interface ServerSettings extends LimitSettings {
  readonly keepAliveSeconds: number;
  readonly trustedProxies: readonly string[];
}

export async function createIngestServer(
  settings: ServerSettings,
  tools: ServerTools,
): Promise<FastifyInstance> {
  const isProxy = addressTest(settings.trustedProxies);
  const shares = newShares(tools.metrics);
  const app = fastify({
    logger: false,
    genReqId: () => newId('req', tools.clock.now()),
    requestIdHeader: false,
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    exposeHeadRoutes: false,
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: settings.keepAliveSeconds * 1_000,
    http: {
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: CONNECTIONS_CHECK_MS,
      maxHeaderSize: MAX_HEADER_BYTES,
      // Node would answer without a body.
      requireHostHeader: false,
    },
    rewriteUrl: routedUrl,
    // A long id is an unknown id, not an unknown path.
    routerOptions: { maxParamLength: MAX_HEADER_BYTES },
    clientErrorHandler: (error, socket) => answerBroken(error, socket, tools),
  });
  // The handler reads the bytes, whatever the Content-Type.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, done) => done(null));
  watchConnections(app, isProxy, shares.connections, tools);
  addHooks(app, { ...tools, findClient: clientFinder(isProxy), shares });
  await addRoutes(app, settings, { ...tools, shares });
  return app;
}
