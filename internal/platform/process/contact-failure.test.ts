import { expect, test } from '@jest/globals';
import type { Logger } from './log.ts';
import { Contact } from './contact-failure.ts';

function processWithClients(count: number) {
  const lines: string[] = [];
  const log = {
    warn: (_: object, line: string) => void lines.push(line),
    info: (line: string) => void lines.push(line),
  } as unknown as Logger;
  const place = { name: 'Redis', at: 'cache:6379', setting: 'REDIS_URL' };
  const clients = Array.from({ length: count }, () => new Contact(place, log));
  return { lines, clients, place, log };
}
const closed = new Error('Connection is closed.');
const refused = Object.assign(new Error('connect'), { code: 'ECONNREFUSED' });
const noLogin = new Error('WRONGPASS invalid username-password pair');

test('all clients of a process log one line for each change of a server', () => {
  const { lines, clients, place, log } = processWithClients(4);
  for (const error of [closed, refused, closed, refused])
    for (const client of clients) client.failed(error);
  // The end of the connection says little, so its cause is logged, too.
  expect(lines).toEqual(['Redis is away', 'Redis is away']);
  expect(clients[3]!.warnings()).toEqual([
    {
      code: 'connection_refused',
      of: 'Redis',
      words: expect.stringContaining('the connection is refused'),
    },
  ]);
  for (const error of [noLogin, refused, noLogin])
    for (const client of clients) client.failed(error);
  expect(lines.splice(0)).toEqual(['Redis is away', 'Redis is away', 'Redis refuses us']);

  for (const client of clients.slice(1)) client.ok();
  expect([lines, clients[0]!.warnings().length]).toEqual([[], 1]);
  clients[0]!.ok();
  for (const client of clients) client.ok();
  expect(lines.splice(0)).toEqual(['Redis is back']);

  clients[0]!.failed(refused);
  new Contact({ ...place, at: 'other:6379' }, log).failed(refused);
  expect(lines).toEqual(['Redis is away', 'Redis is away']);
});

test('a client that was closed during an outage keeps nobody from the next line', () => {
  const { lines, clients } = processWithClients(2);
  clients[0]!.failed(refused);
  clients[0]!.closed();
  clients[1]!.ok();
  clients[1]!.failed(refused);
  clients[1]!.ok();
  expect(lines).toEqual(['Redis is away', 'Redis is away', 'Redis is back']);
});
