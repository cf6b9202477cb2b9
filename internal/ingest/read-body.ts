/** Reads a request's body as raw bytes within bounds, and throws away what is beyond them. */
import type { IncomingMessage } from 'node:http';
import { onBreak } from './connection.ts';
import { BODY_TIMEOUT_MS, DRAIN_MAX_BYTES, DRAIN_MAX_MS, MAX_BODY_BYTES } from './limits.ts';

/**
 * How the body ended:
 * - `whole`: all of it is in `bytes`;
 * - `too_large`: `bytes` holds the first 65,000; the rest was drained within bounds;
 * - `cut_off`: the partner went away, took too long, or broke the framing; `bytes` holds what came.
 */
export interface ReadBody {
  readonly end: 'whole' | 'too_large' | 'cut_off';
  readonly bytes: Buffer;
  readonly received: number;
  /** Whether the whole request has been read, so that the connection can serve another one. */
  readonly reusable: boolean;
}

/** Reads up to 65,000 bytes and drains the rest. Never rejects; ends within `BODY_TIMEOUT_MS` plus `DRAIN_MAX_MS`. */
export function readBody(request: IncomingMessage): Promise<ReadBody> {
  return consume(request, { keep: MAX_BODY_BYTES, timeoutMs: BODY_TIMEOUT_MS });
}

/** Reads and throws away a body nobody wants, within the bounds of draining. */
export function drainBody(request: IncomingMessage): Promise<ReadBody> {
  return consume(request, { keep: 0, timeoutMs: DRAIN_MAX_MS });
}

function consume(
  request: IncomingMessage,
  bounds: { readonly keep: number; readonly timeoutMs: number },
): Promise<ReadBody> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let received = 0;
    let kept = 0;

    const finish = (complete: boolean): void => {
      clearTimeout(timer);
      stopListening();
      request.off('data', onData).off('end', onEnd).off('close', onBroken).off('error', onBroken);
      if (!complete) {
        request.pause();
        // A broken request still emits an error when its socket goes.
        request.on('error', () => {});
      }
      const end = received > bounds.keep ? 'too_large' : complete ? 'whole' : 'cut_off';
      resolve({ end, bytes: Buffer.concat(chunks, kept), received, reusable: complete });
    };
    const onData = (chunk: Buffer): void => {
      received += chunk.length;
      const room = bounds.keep - kept;
      if (room > 0) {
        const part = chunk.length <= room ? chunk : chunk.subarray(0, room);
        chunks.push(part);
        kept += part.length;
      }
      if (received > bounds.keep + DRAIN_MAX_BYTES) finish(false);
      else if (received > bounds.keep && received - chunk.length <= bounds.keep) {
        // From here on the body is only drained, within its own time.
        clearTimeout(timer);
        timer = setTimeout(onBroken, DRAIN_MAX_MS);
      }
    };
    const onEnd = (): void => finish(true);
    const onBroken = (): void => finish(false);

    let timer = setTimeout(onBroken, bounds.timeoutMs);
    // What the parser handed over just before the breakage is still to be emitted, so it counts.
    const stopListening = onBreak(request.socket, () => {
      clearTimeout(timer);
      timer = setTimeout(onBroken);
    });
    request.on('data', onData).on('end', onEnd).on('close', onBroken).on('error', onBroken);
    if (request.destroyed && !request.readableEnded) onBroken();
  });
}
