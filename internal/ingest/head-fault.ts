/** Finds what RFC 9112 forbids in a head but Node's parser accepts. */
import type { IncomingMessage } from 'node:http';
import type { IngestMetrics } from '../telemetry/metrics.ts';
import { MAX_HEADERS } from './limits.ts';

export type HeadFault = Parameters<IngestMetrics['brokenHttp']['inc']>[0]['kind'];

/** A name, address or nothing, with optional port (RFC 9112 §3.2). */
const HOST = /^(?:\[[\da-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(?::\d*)?$/i;
const HOST_LENGTH = 4;

export function headFault({
  rawHeaders,
  httpVersion,
  headers,
}: Pick<IncomingMessage, 'rawHeaders' | 'httpVersion' | 'headers'>): HeadFault | undefined {
  // Node drops headers beyond this bound.
  if (rawHeaders.length >= 2 * MAX_HEADERS) return 'headers_too_large';
  if (httpVersion !== '1.1' && httpVersion !== '1.0') return 'bad_version';
  const { host, 'transfer-encoding': coding } = headers;
  if (host === undefined) {
    if (httpVersion === '1.1') return 'no_host';
  } else if (!HOST.test(host) || hostLines(rawHeaders) > 1) return 'bad_host';
  // Two readers could disagree on where the request ends.
  if (
    coding !== undefined &&
    (httpVersion === '1.0' || coding.trim().toLowerCase() !== 'chunked')
  ) {
    return 'bad_transfer_encoding';
  }
  return undefined;
}

/** Node keeps only the first Host header. */
function hostLines(rawHeaders: readonly string[]): number {
  let lines = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index];
    if (name?.length === HOST_LENGTH && name.toLowerCase() === 'host') lines += 1;
  }
  return lines;
}
