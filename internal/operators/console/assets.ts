/** What pages load: read once, and named by its content, so that browsers may keep it for good. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { FastifyInstance } from 'fastify';

const { resolve } = createRequire(import.meta.url);
const own = (name: string): string =>
  readFileSync(new URL(`assets/${name}`, import.meta.url), 'utf8');

const icons = new Map<string, string>();

/** The SVG of an icon of Lucide, which decorates the words beside it. */
export function iconOf(name: string): string {
  const known = icons.get(name);
  if (known !== undefined) return known;
  const file = readFileSync(resolve(`lucide-static/icons/${name}.svg`), 'utf8');
  const shapes = file.replace(/^[^]*?<svg[^>]*>|\s*<\/svg>\s*$|\s*\n\s*/g, '');
  const svg = `<svg class="icon" viewBox="0 0 24 24" aria-hidden="true">${shapes}</svg>`;
  icons.set(name, svg);
  return svg;
}

const inter = resolve('@fontsource-variable/inter/files/inter-latin-wght-normal.woff2');
const font = assetOf('inter.woff2', 'font/woff2', readFileSync(inter));
const assets = [font, assetOf('console.js', 'text/javascript; charset=utf-8', own('console.js'))];

/** Stands in each page, so that nothing is waited for before it is painted. */
export const styles = own('console.css')
  .replace('inter.woff2', font.path)
  .replaceAll(/\/\*[^]*?\*\//g, '')
  .replaceAll(/\s+/g, ' ')
  .replaceAll(/ ?([{};,>]) ?/g, '$1')
  .replaceAll(': ', ':');
/** Allows just this text in the policy of pages. */
export const stylesHash = `'sha256-${createHash('sha256').update(styles).digest('base64')}'`;

function assetOf(name: string, type: string, content: string | Buffer) {
  const hash = createHash('sha256').update(content).digest('hex').slice(0, 12);
  return { name, type, content, path: `/assets/${hash}-${name}`, etag: `"${hash}"` };
}

export const addressOfAsset = (name: string): string | undefined =>
  assets.find((one) => one.name === name)?.path;

/** `tabIcon` is an SVG. */
export function addAssets(app: FastifyInstance, tabIcon: string): void {
  for (const { path, type, content, etag } of assets) {
    app.get(path, (request, reply) => {
      // For a year: another content has another address.
      void reply.headers({ etag, 'cache-control': 'public, max-age=31536000, immutable' });
      if (request.headers['if-none-match'] === etag) return reply.code(304).send();
      return reply.type(type).send(content);
    });
  }
  // Browsers ask for it at this address, whatever a page names.
  app.get('/favicon.ico', (_, reply) =>
    reply.type('image/svg+xml').header('cache-control', 'max-age=86400').send(tabIcon),
  );
}
