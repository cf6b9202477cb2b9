/** Reads a delivery status notification (RFC 3464), by which a mail server reports a bounce after it took the mail. Pure. */
import { accountOfMessageId } from './message.ts';

export interface DeliveryStatus {
  /** `failed`, `delayed`, `delivered`, `relayed` or `expanded`. */
  readonly action: string;
  /** RFC 3463 status such as `5.1.1`. */
  readonly status?: string;
  /** Of the mail it is about; absent where the notification does not hold it. */
  readonly messageId?: string;
}

/** What the notification says of its first failed recipient, else of its first; undefined if it is none. */
export function readDeliveryStatus(source: string): DeliveryStatus | undefined {
  const message = partOf(source.replaceAll('\r\n', '\n').replace(/^(?:From |>From ).*\n/, ''));
  const type = message.headers.get('content-type') ?? '';
  if (!/^multipart\/report\b/i.test(type)) return undefined;
  const [, quoted, bare] = /;\s*boundary=(?:"([^"]+)"|([^\s;]+))/i.exec(type) ?? [];
  const boundary = quoted ?? bare;
  if (boundary === undefined) return undefined;
  const parts = `\n${message.body}`
    .split(`\n--${boundary}`)
    .slice(1)
    .map((part) => partOf(part.replace(/^.*\n/, '')));
  const report = parts.find(({ headers }) =>
    /^message\/(?:global-)?delivery-status\b/i.test(headers.get('content-type') ?? ''),
  );
  if (report === undefined) return undefined;
  // One group of fields for the message, then one for each recipient.
  const recipients = report.body
    .split(/\n[ \t]*\n/)
    .map(fieldsOf)
    .filter((fields) => fields.has('action'));
  const actionOf = (fields: ReadonlyMap<string, string>): string =>
    /^[\w-]+/.exec(fields.get('action') ?? '')?.[0].toLowerCase() ?? '';
  const recipient = recipients.find((fields) => actionOf(fields) === 'failed') ?? recipients[0];
  if (recipient === undefined) return undefined;
  const status = /^\d\.\d{1,3}\.\d{1,3}\b/.exec(recipient.get('status') ?? '')?.[0];
  const messageId = ownMessageId(parts.filter((part) => part !== report).map(({ body }) => body));
  return {
    action: actionOf(recipient),
    ...(status === undefined ? {} : { status }),
    ...(messageId === undefined ? {} : { messageId }),
  };
}

/** The mail itself or its headers come as a part: the only Message-ID of our form in it is that mail's own. */
function ownMessageId(bodies: readonly string[]): string | undefined {
  return bodies
    .flatMap((body) => unfold(body).match(/^Message-ID:.*$/gim) ?? [])
    .map((line) => line.slice('Message-ID:'.length).trim())
    .find((messageId) => accountOfMessageId(messageId) !== undefined);
}

interface Part {
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

function partOf(source: string): Part {
  // A part without headers begins with an empty line.
  const end = source.startsWith('\n') ? 0 : source.indexOf('\n\n');
  return end < 0
    ? { headers: fieldsOf(source), body: '' }
    : { headers: fieldsOf(source.slice(0, end)), body: source.slice(end + 1) };
}

/** Names in lower case; of a repeated one the first. */
function fieldsOf(lines: string): ReadonlyMap<string, string> {
  const fields = new Map<string, string>();
  for (const line of unfold(lines).split('\n')) {
    const colon = line.indexOf(':');
    const name = line.slice(0, Math.max(0, colon)).trim().toLowerCase();
    if (name !== '' && !fields.has(name)) fields.set(name, line.slice(colon + 1).trim());
  }
  return fields;
}

function unfold(lines: string): string {
  return lines.replaceAll(/\n[ \t]+(?=\S)/g, ' ');
}
