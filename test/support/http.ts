/** HTTP as partners speak it; `ingest.ts` has raw bytes on a socket for everything else. */
import { request, type Agent } from 'node:http';
import { request as requestTls } from 'node:https';

export const INGEST_PATH = '/api/v1/capital/ingest';

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
  readonly json: unknown;
}

export interface RequestOptions {
  readonly method?: string;
  readonly path?: string;
  readonly key?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** The agent; by default each request has a connection of its own. */
  readonly agent?: Agent;
  readonly body?: string | Uint8Array;
  /** Sends the body in these pieces, chunked. */
  readonly chunks?: readonly (string | Uint8Array)[];
  readonly signal?: AbortSignal;
}

const LOOK_UP_TRIES = 10;

/** Sends one request. Rejects if the connection ends without an answer. */
export function send(baseUrl: string, options: RequestOptions = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const url = new URL(options.path ?? INGEST_PATH, baseUrl);
    const ask = url.protocol === 'https:' ? requestTls : request;
    const outgoing = ask(
      url,
      {
        method: options.method ?? 'POST',
        agent: options.agent ?? false,
        signal: options.signal,
        headers: {
          ...(options.key === undefined ? {} : { authorization: `Bearer ${options.key}` }),
          ...(options.chunks === undefined
            ? { 'content-length': String(Buffer.byteLength(options.body ?? '')) }
            : { 'transfer-encoding': 'chunked' }),
          ...options.headers,
        },
      },
      (incoming) => {
        const parts: Buffer[] = [];
        incoming.on('data', (part: Buffer) => parts.push(part));
        incoming.on('error', reject);
        incoming.on('end', () =>
          resolve(
            answerOf(
              incoming.statusCode ?? 0,
              incoming.headers,
              Buffer.concat(parts).toString('utf8'),
            ),
          ),
        );
      },
    );
    outgoing.on('error', reject);
    for (const chunk of options.chunks ?? []) outgoing.write(chunk);
    outgoing.end(options.chunks === undefined ? (options.body ?? '') : undefined);
  });
}

function answerOf(
  status: number,
  headers: Readonly<Record<string, unknown>>,
  text: string,
): Answer {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    json = undefined;
  }
  return {
    status,
    headers: Object.fromEntries(
      Object.entries(headers).map(([name, value]) => [name, String(value)]),
    ),
    text,
    json,
  };
}

/** What `/readyz` says. */
export interface Readiness {
  readonly ok: boolean;
  readonly faults: readonly string[];
  readonly warnings: readonly string[];
  /** One for each fault, then one for each warning. */
  readonly codes: readonly { readonly code: string; readonly of?: string }[];
  /** The files with credentials, and when each was written. */
  readonly files?: unknown;
}

export const readinessOf = async (process: { readonly adminUrl: string }): Promise<Readiness> =>
  (await (await fetch(`${process.adminUrl}/readyz`)).json()) as Readiness;

/** Looks a request up; repeats after a 503, which a busy database may cause. */
export async function lookedUp(lookUp: () => Promise<Answer>): Promise<Answer> {
  for (let tries = 1; ; tries += 1) {
    const answer = await lookUp();
    if (answer.status !== 503 || tries === LOOK_UP_TRIES) return answer;
  }
}
