/** Lets busy connections end before a drain closes idle ones. */
import type { Server } from 'node:http';
import { pause } from '../platform/deadline.ts';

const LOOK_EVERY_MS = 20;

/**
 * Busy clients leave after an answer with `Connection: close`; closing between two requests would
 * reset the next one.
 */
export async function lastAnswers(server: Server, maxMs: number): Promise<void> {
  for (const until = performance.now() + maxMs; performance.now() < until;) {
    const open = await new Promise<number>((resolve) => {
      server.getConnections((_error, count) => resolve(count));
    });
    if (open === 0) return;
    await pause(LOOK_EVERY_MS);
  }
}
