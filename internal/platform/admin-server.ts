/** The HTTP server for operators: `/livez`, `/readyz`, `/metrics` and documents. */
import { createServer } from 'node:http';
import type { AddressInfo, Server } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { Registry } from 'prom-client';
import type { Found } from './config.ts';
import { withDeadline } from './deadline.ts';

/** A slower answer becomes 500, so that probes never pile up. */
const ANSWER_DEADLINE_MS = 3_000;

/** The faults; empty when all is well. */
export type Probe = () => readonly string[] | Promise<readonly string[]>;

interface Options {
  readonly host: string;
  readonly port: number;
  readonly registry: Registry;
  /** Read at each probe, so the caller may add to it later. */
  readonly live: readonly Probe[];
  readonly ready: readonly Probe[];
  /** Faults that leave the process ready. */
  readonly warnings: readonly Probe[];
  /** When each file with a credential was written; shown where something is wrong. */
  readonly files: Found['files'] | undefined;
  readonly documents: Readonly<Record<string, object>>;
}

type Answer = readonly [status: number, type: string, text: string];

export async function allOf(checks: readonly Probe[]): Promise<readonly string[]> {
  return [...new Set((await Promise.all(checks.map(async (check) => check()))).flat())];
}

function json(status: number, body: object): Answer {
  return [status, 'application/json', JSON.stringify(body)];
}

function health(faults: readonly string[], more: object = {}): Answer {
  const ok = faults.length === 0;
  return json(ok ? 200 : 503, { ok, faults, ...more });
}

/** Rejects when the address is not available. */
export async function startAdminServer(options: Options) {
  const { live, ready, registry, documents } = options;
  const routes: Record<string, () => Promise<Answer>> = {
    '/livez': async () => health(await allOf(live)),
    '/readyz': async () => {
      const [faults, warnings] = await Promise.all([allOf(ready), allOf(options.warnings)]);
      const files = faults.length + warnings.length > 0 ? options.files : undefined;
      return health(faults, { warnings, files });
    },
    '/metrics': async () => [200, registry.contentType, await registry.metrics()],
  };
  for (const [path, document] of Object.entries(documents))
    routes[path] = () => Promise.resolve(json(200, document));
  const server = createServer((request, response) => {
    const path = (request.url ?? '').split('?')[0] ?? '';
    const isHead = request.method === 'HEAD';
    const route = isHead || request.method === 'GET' ? routes[path] : undefined;
    const unknown = json(404, { error: `not found; try ${Object.keys(routes).join(', ')}` });
    const late = json(500, { error: `${path} could not be answered in time` });
    const answer = route?.() ?? Promise.resolve(unknown);
    void withDeadline(answer, ANSWER_DEADLINE_MS, path)
      .catch(() => late)
      .then(([status, type, text]) =>
        response.writeHead(status, { 'content-type': type }).end(isHead ? undefined : text),
      );
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(options.port, listenHost(options.host), () => {
      server.off('error', reject);
      resolve();
    });
  });
  return {
    url: urlOf(server),
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** `::` takes IPv4 too; a kernel without IPv6 would refuse it. */
export function listenHost(host: string): string {
  const addresses = Object.values(networkInterfaces()).flat();
  return host === '::' && !addresses.some((one) => one?.family === 'IPv6') ? '0.0.0.0' : host;
}

/** `0.0.0.0` becomes `127.0.0.1`, so that the URL can be opened. */
export function urlOf(server: Server): string {
  const { address, port } = server.address() as AddressInfo;
  const host = address === '0.0.0.0' || address === '::' ? '127.0.0.1' : address;
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}
