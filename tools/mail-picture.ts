/** Remakes docs/images/login-*.png: the e-mail from the built-in templates and the page of its link, as a browser draws them. Needs chromium. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { confirmPage } from '../deploy/local/login-page.ts';
import { activationLink } from '../internal/mail/activation.ts';
import { referenceOf } from '../internal/platform/ids.ts';
import { loginInstructions } from '../internal/mail/message.ts';
import { loadTemplates } from '../internal/mail/templates.ts';

const IMAGES = fileURLToPath(new URL('../docs/images/', import.meta.url));
const BROWSERS = ['chromium', 'chromium-browser', 'google-chrome'];
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
  const query = new URL(link.url).searchParams;
  const page = confirmPage(query.get('account') ?? '', query.get('token') ?? '');
  await draw(html, 'login-instructions.png', '680,760');
  await draw(page, 'login-page.png', '680,300');
}

/** `size` is the width and height of the window, in pixels. */
async function draw(html: string, name: string, size: string): Promise<void> {
  const picture = join(IMAGES, name);
  const workFolder = await mkdtemp(join(tmpdir(), 'mail-picture-'));
  try {
    const page = join(workFolder, 'page.html');
    await writeFile(page, html);
    await takePicture(page, { picture, size, profile: workFolder });
  } finally {
    await rm(workFolder, { recursive: true, force: true });
  }
  console.log(`wrote ${picture} (${(await stat(picture)).size} bytes)`);
}

async function takePicture(
  page: string,
  { picture, size, profile }: { readonly picture: string; readonly size: string; readonly profile: string },
): Promise<void> {
  const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', `--user-data-dir=${profile}`];
  for (const browser of BROWSERS) {
    try {
      await run(browser, [...flags, `--window-size=${size}`, `--screenshot=${picture}`, `file://${page}`], {
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
