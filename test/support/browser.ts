/** A real Chromium. */
import { readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import puppeteer, { type Browser, type Page } from 'puppeteer-core';
import { ROOT } from '../../tools/root.ts';
import { installPackage } from '../../deploy/local/stores/install.ts';
import { findProgram } from '../../deploy/local/stores/process.ts';

const BROWSERS = ['chromium', 'chromium-browser', 'google-chrome'];

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

async function findBrowser(): Promise<string | undefined> {
  const found = await Promise.all(BROWSERS.map(findProgram));
  return found.find((path) => path !== undefined);
}

export async function openBrowser(): Promise<Browser> {
  const executablePath = await findBrowser();
  if (executablePath === undefined) throw new Error(`no ${BROWSERS.join(', ')} on the PATH`);
  // A container's root has no sandbox, and often a small /dev/shm.
  const args = ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'];
  return puppeteer.launch({ executablePath, args, headless: true, protocolTimeout: 120_000 });
}

/** Returns axe's findings in the light and the dark scheme. */
export async function accessFaults(page: Page): Promise<string[]> {
  const faults: string[] = [];
  for (const value of ['light', 'dark']) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value }]);
    // The page's policy allows no script of ours.
    await page.evaluate(axe);
    const found = (await page.evaluate('axe.run()')) as {
      violations: { id: string; nodes: { html: string }[] }[];
    };
    faults.push(...found.violations.map(({ id, nodes }) => `${value}: ${id}: ${nodes[0]?.html}`));
  }
  return faults;
}

/** Says whether the page must be scrolled sideways. */
export async function isTooWide(page: Page): Promise<boolean> {
  return page.evaluate('document.documentElement.scrollWidth > innerWidth') as Promise<boolean>;
}

/** Installs Debian's package if there is no browser; returns why it cannot. */
export async function installBrowser(log: (line: string) => void): Promise<string | undefined> {
  if ((await findBrowser()) !== undefined) return undefined;
  if (process.getuid?.() !== 0 || (await findProgram('apt-get')) === undefined)
    return `no ${BROWSERS.join(', ')} on the PATH, and this is not Debian as root`;
  await installPackage('chromium', log);
  return undefined;
}

export async function textOf(page: Page): Promise<string> {
  return page.evaluate('document.body.innerText') as Promise<string>;
}

/** The rest of a long list shows nothing new. */
const PICTURE_HEIGHT = 1_600;

/**
 * Saves pictures for docs/console.md, of a desk and of a phone, with `PICTURES=docs/images`. One
 * whose name ends in `-dark` is of the dark scheme.
 */
export async function picture(page: Page, name: string): Promise<void> {
  const folder = join(ROOT, process.env['PICTURES'] ?? '.run/pictures');
  await mkdir(folder, { recursive: true });
  const value = name.endsWith('-dark') ? 'dark' : 'light';
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value }]);
  for (const [width, height, end] of [
    [390, 844, '-phone'],
    [1_440, 900, ''],
  ] as const) {
    await page.setViewport({ width, height });
    // Charts are drawn again after a resize.
    await page.evaluate(
      'new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))',
    );
    const whole = (await page.evaluate('document.documentElement.scrollHeight')) as number;
    // What stays in sight then ends where the picture does.
    await page.setViewport({ width, height: Math.max(height, Math.min(whole, PICTURE_HEIGHT)) });
    await page.screenshot({ path: `${join(folder, name + end)}.png` });
  }
}
