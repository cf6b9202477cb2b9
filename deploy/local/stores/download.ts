// Downloads with bounds, through the proxy of the environment (HTTPS_PROXY, NO_PROXY).

import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { EnvHttpProxyAgent, fetch, type Response } from 'undici';
import { messageOf } from './wait.ts';

const ANSWER_TIMEOUT_MS = 20_000;
/** Of a whole download. */
const DOWNLOAD_TIMEOUT_MS = 15 * 60_000;
/** Between two parts of it. */
const SILENCE_TIMEOUT_MS = 60_000;
const BYTES_PER_MB = 1_000_000;

async function request(url: URL, method: 'GET' | 'HEAD', timeoutMs: number): Promise<Response> {
  // fetch takes no address with a password, as a proxy of Go modules may have.
  const { username, password } = url;
  const bare = new URL(url);
  bare.username = bare.password = '';
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  const authorization = `Basic ${Buffer.from(credentials).toString('base64')}`;
  try {
    return await fetch(bare, {
      method,
      headers: username === '' ? {} : { authorization },
      signal: AbortSignal.timeout(timeoutMs),
      dispatcher: new EnvHttpProxyAgent({
        connect: { timeout: ANSWER_TIMEOUT_MS },
        headersTimeout: ANSWER_TIMEOUT_MS,
        bodyTimeout: SILENCE_TIMEOUT_MS,
      }),
    });
  } catch (error) {
    // "fetch failed" has the reason in its cause.
    const reason = messageOf((error as Error).cause ?? error);
    throw new Error(`${bare.host} does not answer: ${reason}`, { cause: error });
  }
}

/**
 * How large the file is, as "72 MB"; rejects where its server does not answer, or the file has more
 * bytes than `most`.
 */
export async function sizeOf(url: string, most: number): Promise<string> {
  const { ok, headers } = await request(new URL(url), 'HEAD', ANSWER_TIMEOUT_MS);
  const bytes = ok ? Number(headers.get('content-length')) : 0;
  if (bytes > most) throw new Error(`${new URL(url).host} offers ${megabytes(bytes)}, too many`);
  return bytes > 0 ? megabytes(bytes) : 'size unknown';
}

export function megabytes(bytes: number): string {
  return `${(bytes / BYTES_PER_MB).toFixed(0)} MB`;
}

/** Writes the file to `path`; rejects unless it has these bytes, read no further than they go. */
export async function download(
  url: string,
  path: string,
  expected: { readonly bytes: number; readonly sha256: string },
): Promise<void> {
  const { ok, status, body } = await request(new URL(url), 'GET', DOWNLOAD_TIMEOUT_MS);
  if (!ok || body === null) throw new Error(`${new URL(url).host} answers ${status}`);
  const hash = createHash('sha256');
  let bytes = 0;
  await pipeline(
    body,
    async function* (parts: AsyncIterable<Uint8Array>) {
      for await (const part of parts) {
        bytes += part.length;
        if (bytes > expected.bytes) break;
        hash.update(part);
        yield part;
      }
    },
    createWriteStream(path),
  );
  if (bytes !== expected.bytes || hash.digest('hex') !== expected.sha256)
    throw new Error(`${new URL(url).host} has another file than the pinned one`);
}
