/** The time in which connections in use hear of a drain, before those that are idle are closed. */
import type { Server } from 'node:http';
import { pause } from '../platform/deadline.ts';

/** How often it is looked whether any connection is left. */
const LOOK_EVERY_MS = 20;

/**
 * Resolves when no connection is left, or after `maxMs`. While answers say `Connection: close`, a
 * client that is busy leaves by itself; closing its connection between two requests would meet the
 * next one on its way and reset it.
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
