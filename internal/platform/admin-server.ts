/** The HTTP server for operators: `/livez`, `/readyz`, `/metrics` and documents. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { Registry } from 'prom-client';
import type { Found } from './config-value.ts';
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
  readonly warnings?: readonly Probe[];
  /** When each file with a credential was written; shown where something is wrong. */
  readonly files?: Found['files'] | undefined;
  readonly documents?: Readonly<Record<string, object>>;
}

export interface AdminServer {
  readonly url: string;
  close(): Promise<void>;
}

export async function allOf(checks: readonly Probe[]): Promise<readonly string[]> {
  return [...new Set((await Promise.all(checks.map(async (check) => check()))).flat())];
}

async function probe(
  checks: readonly Probe[],
  more?: Pick<Options, 'warnings' | 'files'>,
): Promise<[number, string, string]> {
  const faults = await allOf(checks);
  const warnings = more && (await allOf(more.warnings ?? []));
  const files = faults.length + (warnings ?? []).length > 0 ? more?.files : undefined;
  return [
    faults.length === 0 ? 200 : 503,
    'application/json',
    JSON.stringify({ ok: faults.length === 0, faults, warnings, files }),
  ];
}

/** Rejects when the address is not available. */
export async function startAdminServer(options: Options): Promise<AdminServer> {
  const routes: Record<string, () => Promise<[number, string, string]>> = {
    '/livez': () => probe(options.live),
    '/readyz': () => probe(options.ready, options),
    '/metrics': async () => [200, options.registry.contentType, await options.registry.metrics()],
  };
  for (const [path, document] of Object.entries(options.documents ?? {})) {
    const text = JSON.stringify(document);
    routes[path] = () => Promise.resolve([200, 'application/json', text]);
  }
  const server = createServer((request, response) => {
    const path = (request.url ?? '').split('?')[0] ?? '';
    const route = request.method === 'GET' || request.method === 'HEAD' ? routes[path] : undefined;
    const answer = (status: number, type: string, text: string): void => {
      response
        .writeHead(status, { 'content-type': type })
        .end(request.method === 'HEAD' ? undefined : text);
    };
    if (route === undefined) {
      answer(
        404,
        'application/json',
        JSON.stringify({ error: `not found; try ${Object.keys(routes).join(', ')}` }),
      );
      return;
    }
    withDeadline(route(), ANSWER_DEADLINE_MS, path).then(
      (result) => answer(...result),
      () =>
        answer(
          500,
          'application/json',
          JSON.stringify({ error: `${path} could not be answered in time` }),
        ),
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
    url: `http://${displayAddress(server.address() as AddressInfo)}`,
    close: () =>
      new Promise((resolve) => {
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
export function displayAddress(address: AddressInfo): string {
  const host =
    address.address === '0.0.0.0' || address.address === '::' ? '127.0.0.1' : address.address;
  return `${host.includes(':') ? `[${host}]` : host}:${address.port}`;
}
