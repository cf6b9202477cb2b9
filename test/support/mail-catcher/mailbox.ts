// Keeps the caught mails in bounded memory, parsed, and tells waiters about new ones.
import PostalMime, { type Address, type Email } from 'postal-mime';

/** One mail the catcher kept, as the SMTP server got it and as a reader sees it. */
export interface CaughtMail {
  /** Counts up from 1. */
  id: number;
  receivedAt: Date;
  /** Address of MAIL FROM; empty for the null sender. */
  envelopeFrom: string;
  /** Addresses of RCPT TO, in the order they were accepted. */
  envelopeTo: string[];
  /** With its angle brackets, as in the header. */
  messageId: string;
  subject: string;
  /** Bare address of the From header; its name is `fromName`. */
  from: string;
  fromName: string;
  /** Bare addresses of the To header. */
  to: string[];
  text: string;
  html: string;
  /** http and https URLs of the text part, in order, each once. */
  links: string[];
  raw: string;
  /**
   * Lower-case names, values unfolded but not decoded; the values of a repeated header are joined
   * by line feeds.
   */
  headers: Record<string, string>;
}

/** What the SMTP session knew about a message beside its content. */
export interface Envelope {
  mailFrom: string;
  rcptTo: string[];
}

interface Waiter {
  predicate: (mail: CaughtMail) => boolean;
  settle: (mail: CaughtMail) => void;
  fail: (reason: string) => void;
}

/** Mails kept when the caller says nothing else: the newest 1,000. */
export const MAILS_KEPT = 1_000;

/**
 * Source bytes kept over all mails: 64 MiB. The count alone would allow 1,000 mails of 1 MiB, and
 * each is held as source, text and HTML, which is several times that on a machine that also runs
 * the stores.
 */
const BYTES_KEPT = 64 * 1_024 * 1_024;

/** Mails named in the error of a wait that timed out, so that it stays readable. */
const MAILS_IN_WAIT_ERROR = 20;

/**
 * A URL ends at white space, quotes or brackets; a full stop or comma behind it belongs to the
 * sentence.
 */
const LINK = /https?:\/\/[^\s<>"'`()[\]{}]+/giu;
const SENTENCE_END = /[.,;:!?]+$/u;

/** The mails in order of arrival, oldest first. */
export class Mailbox {
  readonly mails: CaughtMail[] = [];
  readonly #keep: number;
  readonly #waiters = new Set<Waiter>();
  #lastId = 0;
  #bytes = 0;
  #dropped = 0;
  #closed = false;

  constructor(keep: number = MAILS_KEPT) {
    this.#keep = keep;
  }

  /** Mails forgotten because newer ones needed the room. */
  get dropped(): number {
    return this.#dropped;
  }

  add(parsed: ParsedMail, envelope: Envelope): CaughtMail {
    this.#lastId += 1;
    const mail: CaughtMail = {
      id: this.#lastId,
      receivedAt: new Date(),
      envelopeFrom: envelope.mailFrom,
      envelopeTo: [...envelope.rcptTo],
      ...parsed,
    };
    this.mails.push(mail);
    this.#bytes += mail.raw.length;
    while (this.mails.length > this.#keep || (this.#bytes > BYTES_KEPT && this.mails.length > 1)) {
      this.#bytes -= this.mails.shift()?.raw.length ?? 0;
      this.#dropped += 1;
    }
    for (const waiter of this.#waiters) {
      try {
        if (waiter.predicate(mail)) waiter.settle(mail);
      } catch (error) {
        // Told to the one who waits; the client that sent the mail has nothing to do with it.
        waiter.fail(`the predicate failed: ${String(error)}`);
      }
    }
    return mail;
  }

  /**
   * Mails whose envelope names this recipient, whatever the To header says; case does not count.
   */
  to(address: string): CaughtMail[] {
    const wanted = address.toLowerCase();
    return this.mails.filter((mail) =>
      mail.envelopeTo.some((recipient) => recipient.toLowerCase() === wanted),
    );
  }

  /**
   * The first kept or coming mail that fits; rejects after `timeoutMs` or when the mailbox closes.
   */
  waitFor(predicate: (mail: CaughtMail) => boolean, timeoutMs: number): Promise<CaughtMail> {
    const present = this.mails.find((mail) => predicate(mail));
    if (present !== undefined) return Promise.resolve(present);
    if (this.#closed) return Promise.reject(new Error('the mail catcher is closed'));
    return new Promise((resolve, reject) => {
      const end = (): void => {
        clearTimeout(timer);
        this.#waiters.delete(waiter);
      };
      const waiter: Waiter = {
        predicate,
        settle: (mail) => {
          end();
          resolve(mail);
        },
        fail: (reason) => {
          end();
          reject(new Error(`${reason}; ${this.#describe()}`));
        },
      };
      const timer = setTimeout(
        () => waiter.fail(`no mail that fits came within ${timeoutMs} ms`),
        timeoutMs,
      );
      this.#waiters.add(waiter);
    });
  }

  clear(): void {
    this.mails.length = 0;
    this.#bytes = 0;
  }

  /**
   * Ends every wait, so that a test which closes too early fails at once instead of at its
   * time-out.
   */
  close(): void {
    this.#closed = true;
    for (const waiter of this.#waiters) waiter.fail('the mail catcher was closed');
  }

  #describe(): string {
    if (this.mails.length === 0) return 'no mails seen';
    const newest = this.mails.slice(-MAILS_IN_WAIT_ERROR);
    const lines = newest.map((mail) => `"${mail.subject}" to ${mail.envelopeTo.join(', ')}`);
    return `${this.mails.length} mails seen, the newest: ${lines.join(' | ')}`;
  }
}

/** What a message's own bytes say, without the envelope. */
export type ParsedMail = Omit<CaughtMail, 'id' | 'receivedAt' | 'envelopeFrom' | 'envelopeTo'>;

/** Rejects when the message is beyond the parser's bounds (nesting depth, size of headers). */
export async function parseMail(source: Buffer): Promise<ParsedMail> {
  const email = await PostalMime.parse(source, { rfc822Attachments: true });
  const [from] = mailboxes(email.from === undefined ? [] : [email.from]);
  const text = email.text ?? '';
  return {
    messageId: email.messageId ?? '',
    subject: email.subject ?? '',
    from: from?.address ?? '',
    fromName: from?.name ?? '',
    to: mailboxes(email.to ?? []).map((recipient) => recipient.address),
    text,
    html: email.html ?? '',
    links: linksIn(text),
    raw: source.toString('utf8'),
    headers: headersOf(email),
  };
}

function mailboxes(addresses: Address[]): { name: string; address: string }[] {
  return addresses.flatMap((entry) => entry.group ?? [entry]);
}

function linksIn(text: string): string[] {
  const found = text.match(LINK) ?? [];
  return [...new Set(found.map((link) => link.replace(SENTENCE_END, '')))];
}

function headersOf(email: Email): Record<string, string> {
  const values = new Map<string, string>();
  for (const { key, value } of email.headers) {
    const earlier = values.get(key);
    values.set(key, earlier === undefined ? value : `${earlier}\n${value}`);
  }
  // fromEntries defines own properties, so a header called __proto__ stays a plain value.
  return Object.fromEntries(values);
}
