/** The HTTP server for operators: `/livez`, `/readyz`, `/metrics` and documents. */
import type { AddressInfo, Server } from 'node:net';
import { hostname, networkInterfaces } from 'node:os';
import { fastify, type FastifyError, type FastifyReply } from 'fastify';
import type { Registry } from 'prom-client';
import type { FoundBeside } from '../process/config.ts';
import { allOf, wordsOf, type Fault, type Probe } from '../process/fault.ts';
import type { PlainGauge } from '../process/registry.ts';
import { authorityOf } from './networks.ts';

/** A slower answer becomes an error, so that probes never pile up. */
const ANSWER_DEADLINE_MS = 3_000;

interface AdminServerOptions {
  readonly host: string;
  readonly port: number;
  readonly registry: Registry;
  readonly readiness: PlainGauge;
  /** Read at each probe, so the caller may add to it later. */
  readonly live: readonly Probe[];
  readonly ready: readonly Probe[];
  /** Faults that leave the process ready. */
  readonly warnings: readonly Probe[];
  /** When each file with a credential was written; shown if something is wrong. */
  readonly files: FoundBeside['files'] | undefined;
  readonly documents: Readonly<Record<string, object>>;
}

function sendHealth(reply: FastifyReply, faults: readonly Fault[], more: object = {}): void {
  const ok = faults.length === 0;
  reply.code(ok ? 200 : 503).send({ ok, faults: wordsOf(faults), ...more });
}

/** Rejects when the address is not available. */
export async function startAdminServer(options: AdminServerOptions) {
  const { live, ready, registry, readiness, documents } = options;
  const app = fastify({ forceCloseConnections: true, handlerTimeout: ANSWER_DEADLINE_MS });
  app.get('/livez', async (_request, reply) => {
    sendHealth(reply, await allOf(live));
    return reply;
  });
  app.get('/readyz', async (_request, reply) => {
    const [faults, warnings] = await Promise.all([allOf(ready), allOf(options.warnings)]);
    const told = [...faults, ...warnings];
    // For programs: one for each sentence, in their order.
    const codes = told.map(({ code, of }) => ({ code, of }));
    const files = told.length > 0 ? options.files : undefined;
    // In Kubernetes, the pod's name.
    const name = hostname();
    sendHealth(reply, faults, { warnings: wordsOf(warnings), codes, files, name });
    return reply;
  });
  app.get('/metrics', async (_request, reply) => {
    readiness.set((await allOf(ready)).length === 0 ? 1 : 0);
    return reply.type(registry.contentType).send(await registry.metrics());
  });
  for (const [path, document] of Object.entries(documents)) app.get(path, () => document);
  const paths = ['/livez', '/readyz', '/metrics', ...Object.keys(documents)].join(', ');
  app.setNotFoundHandler((_request, reply) =>
    reply.code(404).send({ error: `not found; try ${paths}` }),
  );
  app.setErrorHandler(({ statusCode = 500 }: FastifyError, { url }, reply) =>
    reply.code(statusCode).send({ error: `${url} could not be answered in time` }),
  );
  await app.listen({ host: listenHost(options.host), port: options.port });
  return { url: urlOf(app.server), close: () => app.close() };
}

/** `::` takes IPv4 too, but a kernel without IPv6 would refuse it. */
export function listenHost(host: string): string {
  const addresses = Object.values(networkInterfaces()).flat();
  return host === '::' && !addresses.some((one) => one?.family === 'IPv6') ? '0.0.0.0' : host;
}

/** `0.0.0.0` becomes `127.0.0.1`, so that the URL can be opened. */
export function urlOf(server: Server): string {
  const { address, port } = server.address() as AddressInfo;
  const host = address === '0.0.0.0' || address === '::' ? '127.0.0.1' : address;
  return `http://${authorityOf({ host, port })}`;
}
