/** The e-mail to the applicant: login instructions in text and HTML. Pure. */

export interface LoginInstructions {
  readonly accountId: string;
  readonly businessName: string;
  /** Where the mail goes, and the user name to log in with. */
  readonly email: string;
  readonly loginUrl: string;
  readonly activationUrl: string;
  readonly activationExpiresAt: Date;
}

export interface Message {
  readonly subject: string;
  readonly text: string;
  readonly html: string;
  /** The same for every hand-over of this mail, so that a mail server may drop a repeat. */
  readonly messageId: string;
}

/** A name longer than this is cut in the greeting; the account keeps it whole. */
const GREETING_NAME_MAX = 120;

/** `senderDomain` ends the Message-ID, e.g. `partner.example`. */
export function loginInstructions(facts: LoginInstructions, senderDomain: string): Message {
  const name = oneLine(facts.businessName);
  const expires = new Intl.DateTimeFormat('en-GB', { dateStyle: 'long', timeStyle: 'short', timeZone: 'UTC' }).format(
    facts.activationExpiresAt,
  );
  const lines = {
    subject: 'Your account is ready: how to log in',
    welcome: `The account of ${name} is ready.`,
    activate: 'Activate it once, with this link:',
    until: `The link works once, until ${expires} UTC.`,
    login: 'After that, log in at:',
    user: 'Your user name:',
    unexpected: 'If you did not apply for an account, please ignore this e-mail.',
  };
  return {
    subject: lines.subject,
    messageId: `<${facts.accountId}.login-instructions@${senderDomain}>`,
    text: [
      'Hello,',
      lines.welcome,
      `${lines.activate}\n${facts.activationUrl}`,
      lines.until,
      `${lines.login}\n${facts.loginUrl}`,
      `${lines.user} ${facts.email}`,
      lines.unexpected,
    ]
      .join('\n\n')
      .concat('\n'),
    html: html(facts, { ...lines, welcome: `The account of <strong>${escapeHtml(name)}</strong> is ready.` }),
  };
}

function html(facts: LoginInstructions, lines: Readonly<Record<string, string>>): string {
  const button =
    'display:inline-block;padding:12px 24px;border-radius:6px;background:#1f5eff;color:#ffffff;text-decoration:none;font-weight:600';
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${lines['subject']}</title></head>
<body style="margin:0;background:#f3f4f6;font-family:system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif;color:#111827">
<table role="presentation" width="100%" cellpadding="0" cellspacing="0"><tr><td align="center" style="padding:32px 16px">
<table role="presentation" width="560" cellpadding="0" cellspacing="0" style="max-width:560px;width:100%;background:#ffffff;border-radius:8px"><tr><td style="padding:32px;font-size:16px;line-height:1.5">
<p style="margin-top:0">Hello,</p>
<p>${lines['welcome']}</p>
<p>${lines['activate']}</p>
<p><a href="${escapeHtml(facts.activationUrl)}" style="${button}">Activate account</a></p>
<p style="font-size:14px;color:#4b5563">${lines['until']}</p>
<p>${lines['login']} <a href="${escapeHtml(facts.loginUrl)}">${escapeHtml(facts.loginUrl)}</a><br>
${lines['user']} <strong>${escapeHtml(facts.email)}</strong></p>
<p style="margin-bottom:0;font-size:14px;color:#4b5563">${lines['unexpected']}</p>
</td></tr></table>
</td></tr></table>
</body>
</html>
`;
}

/** Control characters, line and paragraph separators become spaces: a name must not shape the mail around it. */
function oneLine(name: string): string {
  const flat = name
    .toWellFormed()
    .replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]+/gu, ' ')
    .trim();
  return flat.length > GREETING_NAME_MAX ? `${flat.slice(0, GREETING_NAME_MAX).toWellFormed()}…` : flat;
}

function escapeHtml(text: string): string {
  const entities: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
  return text.replace(/[&<>"']/g, (character) => entities[character] ?? character);
}
