/**
 * What is used of ioredis beyond its documentation. If a version changes it,
 * `test/integration/redis-access.test.ts` fails.
 */
import type { Redis } from 'ioredis';

/**
 * Hears how each command ends, except one. On reconnect the client sends its own commands and leaves
 * their rejections unhandled, which would end the process.
 */
export function onReplies(redis: Redis, taken: () => void, failed: (error: Error) => void): void {
  const sendCommand = redis.sendCommand.bind(redis);
  redis.sendCommand = (command, stream) => {
    const { name, args } = command;
    // The library ignores that a Redis before 7.2 refuses this command.
    const isSetInfo = name === 'client' && /^setinfo$/i.test(String(args[0]));
    if (!isSetInfo) command.promise.then(taken, failed);
    return sendCommand(command, stream);
  };
}
