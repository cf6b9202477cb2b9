/** The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677). */
import { createHash, createHmac, pbkdf2Sync, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Binary, Document } from 'mongodb';

const ITERATIONS = 15_000;
/** Commands that need no login. */
const OPEN = ['ping', 'endSessions', 'buildInfo'];

const hmac = (key: Buffer, text: string): Buffer => createHmac('sha256', key).update(text).digest();
const field = (message: string, name: string): string =>
  message
    .split(',')
    .find((part) => part.startsWith(`${name}=`))
    ?.slice(2) ?? '';

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

interface Conversation {
  readonly messages: string;
  readonly nonce: string;
}

export class Login {
  readonly #username: string;
  readonly #salt = randomBytes(16);
  readonly #salted: Buffer;
  readonly #conversations = new WeakMap<object, Conversation>();
  readonly #loggedIn = new WeakSet<object>();

  constructor({ username, password }: Credentials) {
    this.#username = username;
    this.#salted = pbkdf2Sync(password, this.#salt, ITERATIONS, 32, 'sha256');
  }

  /**
   * The answer to a command of the login, or to one that needs it; undefined if the command may
   * pass.
   */
  answer(name: string, command: Document, connection: object): Document | undefined {
    const payload = (command['payload'] as Binary | undefined)?.toString('utf8') ?? '';
    if (name === 'saslStart') return this.#start(command, payload, connection);
    if (name === 'saslContinue') return this.#prove(payload, connection);
    if (this.#loggedIn.has(connection) || OPEN.includes(name)) return undefined;
    return {
      ok: 0,
      code: 13,
      codeName: 'Unauthorized',
      errmsg: `Command ${name} requires authentication`,
    };
  }

  #start(command: Document, payload: string, connection: object): Document {
    const bare = payload.slice('n,,'.length);
    if (command['mechanism'] !== 'SCRAM-SHA-256' || command['$db'] !== 'admin') return FAILED;
    if (field(bare, 'n') !== this.#username) return FAILED;
    const nonce = field(bare, 'r') + randomBytes(18).toString('base64');
    const first = `r=${nonce},s=${this.#salt.toString('base64')},i=${ITERATIONS}`;
    this.#conversations.set(connection, { messages: `${bare},${first}`, nonce });
    return { ok: 1, conversationId: 1, done: false, payload: Buffer.from(first) };
  }

  #prove(payload: string, connection: object): Document {
    const conversation = this.#conversations.get(connection);
    if (conversation === undefined || field(payload, 'r') !== conversation.nonce) return FAILED;
    const proof = Buffer.from(field(payload, 'p'), 'base64');
    const messages = `${conversation.messages},${payload.slice(0, payload.lastIndexOf(',p='))}`;
    const clientKey = hmac(this.#salted, 'Client Key');
    const signature = hmac(createHash('sha256').update(clientKey).digest(), messages);
    const expected = clientKey.map((byte, index) => byte ^ signature[index]!);
    if (proof.length !== expected.length || !timingSafeEqual(proof, expected)) return FAILED;
    this.#loggedIn.add(connection);
    const verifier = hmac(hmac(this.#salted, 'Server Key'), messages).toString('base64');
    return { ok: 1, conversationId: 1, done: true, payload: Buffer.from(`v=${verifier}`) };
  }
}

const FAILED = {
  ok: 0,
  code: 18,
  codeName: 'AuthenticationFailed',
  errmsg: 'Authentication failed.',
};
