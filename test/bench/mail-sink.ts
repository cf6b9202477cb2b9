/**
 * A relay that takes every mail: a process of its own, so that its processor time is not that of
 * who measures.
 */
import { SMTPServer } from 'smtp-server';
import { listen } from '../support/listen.ts';

/** How often the count is told. */
const TELL_EVERY_MS = 10;

let count = 0;
const server = new SMTPServer({
  disabledCommands: ['AUTH', 'STARTTLS'],
  onData: (stream, _session, done) => {
    stream.resume();
    stream.on('end', () => {
      count += 1;
      done();
    });
  },
});
server.on('error', () => {});
process.send?.({ url: `smtp://127.0.0.1:${await listen(server.server)}` });
setInterval(() => process.send?.({ count }), TELL_EVERY_MS);
process.once('disconnect', () => process.exit());
