/** Remakes docs/images/login-instructions.png: the e-mail from the built-in templates, as a browser draws it. Needs chromium. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { activationLink } from '../internal/mail/activation.ts';
import { referenceOf } from '../internal/platform/ids.ts';
import { loginInstructions } from '../internal/mail/message.ts';
import { loadTemplates } from '../internal/mail/templates.ts';
import { readable } from '../test/support/quoted-printable.ts';

const PICTURE = fileURLToPath(new URL('../docs/images/login-instructions.png', import.meta.url));
const BROWSERS = ['chromium', 'chromium-browser', 'google-chrome'];
const SIZE = '680,705';
const DRAW_TIMEOUT_MS = 30_000;

const run = promisify(execFile);

/** `folder` holds templates to draw instead of the built-in ones. */
async function main(folder?: string): Promise<void> {
  const loginUrl = 'https://login.partner-ingest.example/';
  const link = activationLink('acc_01m7yppxy4e01v3gzvkymsa33d', {
    loginUrl,
    linkSecret: 'only-for-the-picture-in-the-docs',
  });
  const writtenAt = new Date('2026-12-01T09:05:00Z');
  const { html } = loginInstructions(
    {
      accountId: 'acc_01m7yppxy4e01v3gzvkymsa33d',
      reference: referenceOf('req_01m7yppxy4e01v3gzvkymsa33d'),
      supportContact: 'help@partner-ingest.example',
      businessName: 'Ada’s “Engines” & Söhne <Ltd>',
      email: 'ada@engines.example',
      loginUrl,
      activationUrl: link.url,
      activationExpiresAt: new Date('2026-12-08T09:05:00Z'),
      writtenAt,
    },
    'partner-ingest.example',
    await loadTemplates(folder),
  );
  const workFolder = await mkdtemp(join(tmpdir(), 'mail-picture-'));
  try {
    const page = join(workFolder, 'mail.html');
    await writeFile(page, readable(html));
    await draw(page, workFolder);
  } finally {
    await rm(workFolder, { recursive: true, force: true });
  }
  console.log(`wrote ${PICTURE} (${(await stat(PICTURE)).size} bytes)`);
}

async function draw(page: string, profile: string): Promise<void> {
  const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', `--user-data-dir=${profile}`];
  for (const browser of BROWSERS) {
    try {
      await run(browser, [...flags, `--window-size=${SIZE}`, `--screenshot=${PICTURE}`, `file://${page}`], {
        timeout: DRAW_TIMEOUT_MS,
      });
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }
  throw new Error(`none of ${BROWSERS.join(', ')} is on the PATH (Debian: apt-get install chromium)`);
}

main(process.argv[2]).catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
});
