/**
 * A relay that takes every mail, in a process of its own so that its processor time counts apart.
 */
import { SMTPServer } from 'smtp-server';
import { listen } from '../support/listen.ts';

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
