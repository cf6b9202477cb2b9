/** The server's side of a login by PLAIN (RFC 4616), which needs no conversation. */
import type { Binary, Document } from 'mongodb';

/** Commands that need no login. */
const OPEN = ['ping', 'endSessions', 'buildInfo'];

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

export class Login {
  readonly #payload: string;
  readonly #loggedIn = new WeakSet<object>();

  constructor({ username, password }: Credentials) {
    this.#payload = `\0${username}\0${password}`;
  }

  /** The answer to a login, or to a command that needs one; undefined if the command may pass. */
  answer(name: string, command: Document, connection: object): Document | undefined {
    if (name === 'saslStart') {
      if ((command['payload'] as Binary).toString('utf8') !== this.#payload)
        return {
          ok: 0,
          code: 18,
          codeName: 'AuthenticationFailed',
          errmsg: 'Authentication failed.',
        };
      this.#loggedIn.add(connection);
      return { ok: 1, conversationId: 1, done: true, payload: Buffer.alloc(0) };
    }
    if (this.#loggedIn.has(connection) || OPEN.includes(name)) return undefined;
    return {
      ok: 0,
      code: 13,
      codeName: 'Unauthorized',
      errmsg: `Command ${name} requires authentication`,
    };
  }
}
