/** Settings of the e-mail to the applicant: the relay, the sender, the templates and the link. */
import { z } from 'zod';
import { isEmailAddress } from '../application/email-address.ts';
import { linkSecretFault } from '../mail/activation.ts';
import { isClientName } from '../mail/relay.ts';
import type { Setting } from '../platform/process/config.ts';
import { securePage, unless, url, wholeNumber } from '../platform/config-rules.ts';

const usedBy = ['processor'] as const;

const email = z.string().refine(isEmailAddress, 'must be an e-mail address');
const clientName = z
  .string()
  .refine(
    isClientName,
    'must be a fully qualified host name, or an address literal such as [192.0.2.1]',
  );
/** An empty setting counts as unset. */
const oneLine = (max: number) =>
  z
    .string()
    .regex(
      new RegExp(`^[^\\p{Cc}]{0,${max}}$`, 'u'),
      `must be one line of at most ${max} characters`,
    );

export const mailSettings = {
  SMTP_URL: {
    schema: url(['smtp', 'smtps']),
    usedBy,
    secret: true,
    about:
      'Mail relay: `smtp://host:587` or `smtps://host:465`, with `user:password@` (percent-encoded).',
  },
  SMTP_TLS: {
    schema: z.enum(['auto', 'required', 'opportunistic', 'none']).default('auto'),
    usedBy,
    about:
      'STARTTLS with `smtp://`: `required`, `opportunistic` or `none`; `auto` requires it where a password would go to another machine.',
  },
  MAIL_FROM: {
    schema: email,
    usedBy,
    about: 'Sender address.',
  },
  MAIL_CLIENT_NAME: {
    schema: clientName.optional(),
    usedBy,
    about:
      "Name that greets the relay. Unset: the machine's, if fully qualified, else the domain of `MAIL_FROM`.",
  },
  MAIL_FROM_NAME: {
    schema: oneLine(100).default(''),
    usedBy,
    about: 'Name with the sender address.',
  },
  MAIL_SUPPORT_CONTACT: {
    schema: oneLine(200).optional(),
    usedBy,
    about: 'Where applicants ask for help; the e-mail names it.',
  },
  MAIL_PER_SECOND: {
    schema: wholeNumber(0, 10_000).default(0),
    usedBy,
    about: 'Most e-mails of all processors in a second. 0: no limit.',
  },
  MAIL_CONNECTIONS: {
    schema: wholeNumber(0, 1_000).default(0),
    usedBy,
    about: 'E-mails that one process hands over at once. 0: `PROCESSOR_CONCURRENCY`.',
  },
  MAIL_TEMPLATES: {
    schema: z.string().default(''),
    usedBy,
    about: 'Folder with templates of the e-mail (docs/email.md). Empty: ours.',
  },
  TEST_MAIL_TO: {
    schema: email.optional(),
    usedBy,
    about: 'Where the e-mails of tests go. Unset: nowhere.',
  },
  LOGIN_URL: {
    schema: securePage,
    usedBy,
    about: 'Login page of the activation link (docs/login.md). Must be https, except on loopback.',
  },
  LINK_SECRET: {
    schema: unless(linkSecretFault),
    usedBy,
    secret: true,
    about:
      'Key of the activation tokens (HMAC), the same in every processor; to rotate it, two (docs/login.md).',
  },
} as const satisfies Record<string, Setting<'processor'>>;
