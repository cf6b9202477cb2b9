// How large a download is, asked through the proxy of the environment (HTTPS_PROXY, NO_PROXY).

import { EnvHttpProxyAgent, fetch, type Response } from 'undici';
import { messageOf } from './wait.ts';

const ANSWER_TIMEOUT_MS = 20_000;
const BYTES_PER_MB = 1_000_000;

/**
 * How large the file is, as "72 MB"; rejects where its server does not answer, or the file has more
 * bytes than `most`.
 */
export async function sizeOf(url: string, most: number): Promise<string> {
  const { ok, headers } = await ask(url);
  const bytes = ok ? Number(headers.get('content-length')) : 0;
  const size = `${(bytes / BYTES_PER_MB).toFixed(0)} MB`;
  if (bytes > most) throw new Error(`${new URL(url).host} offers ${size}, too many`);
  return bytes > 0 ? size : 'size unknown';
}

async function ask(url: string): Promise<Response> {
  try {
    return await fetch(url, {
      method: 'HEAD',
      signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
      dispatcher: new EnvHttpProxyAgent({ connect: { timeout: ANSWER_TIMEOUT_MS } }),
    });
  } catch (error) {
    // "fetch failed" has the reason in its cause.
    const reason = messageOf((error as Error).cause ?? error);
    throw new Error(`${new URL(url).host} does not answer: ${reason}`, { cause: error });
  }
}
