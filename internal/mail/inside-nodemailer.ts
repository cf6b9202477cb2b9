/**
 * What is used of nodemailer beyond its documentation. If a version changes it,
 * `test/integration/mail-mailer.test.ts` and `mail-faults.test.ts` fail.
 */
import type { Readable, Writable } from 'node:stream';
import type { createTransport } from 'nodemailer';
import type SMTPConnection from 'nodemailer/lib/smtp-connection';

/** Given to `sendMail` as `progressMark`. */
export interface ProgressMark {
  onProgress(progress: 'connected' | 'content'): void;
  /** If false, no content is sent. */
  mayGoOn(): boolean;
}

/** Tells each message's mark how far its hand-over has come. */
export function markProgress(transport: Pick<ReturnType<typeof createTransport>, 'use'>): void {
  transport.use('stream', (mail, done) => {
    const { progressMark: mark, raw } = mail.data as unknown as {
      readonly progressMark: ProgressMark;
      readonly raw: string;
    };
    // nodemailer pipes the stream after the 354. With a real stream it would drop an earlier 421.
    mail.message.createReadStream = () => {
      mark.onProgress('connected');
      return {
        pipe: (socket: Writable) => {
          if (!mark.mayGoOn()) return;
          mark.onProgress('content');
          socket.end(raw);
        },
      } as unknown as Readable;
    };
    done();
  });
}

const SENDER = 'SENDER';

/** `MAIL FROM` as a way to log in: only so nodemailer sends a command of ours. */
export function senderAsLogin(from: string, answered: (answer: string) => void) {
  const customAuth: SMTPConnection.Options['customAuth'] = {
    [SENDER]: (login) =>
      login.sendCommand(`MAIL FROM:<${from}>`, (_, { response }) => {
        answered(response);
        login.resolve();
      }),
  };
  return { customAuth, credentials: { method: SENDER } };
}
