/** Lets busy connections learn of a drain before idle ones are closed. */
import type { Server } from 'node:http';
import { pause } from '../platform/deadline.ts';

const LOOK_EVERY_MS = 20;

/**
 * Busy clients leave when an answer says `Connection: close`; closing between two requests would
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
