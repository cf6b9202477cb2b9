/** Turns models into pages: escaped, printable, and never cached. */
import { fileURLToPath } from 'node:url';
import { Eta } from 'eta';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { duration, printable } from '../platform/terminal.ts';
import { keyStatusInWords, switchedOffBy, type PartnerView } from '../view/partners.ts';
import { utcSeconds } from '../view/times.ts';
import type { Person } from './person.ts';

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** Safe as it is. */
class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** What a direction mark or a control would do to a page, it does to a terminal, too. */
function escaped(value: unknown): string {
  return value instanceof Html
    ? value.text
    : printable(String(value)).replace(/[&<>"']/g, (letter) => ESCAPES[letter] ?? '');
}

const eta = new Eta({
  views: fileURLToPath(new URL('pages', import.meta.url)),
  cache: true,
  escapeFunction: escaped,
});

const numbers = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

/** What every template may use. */
const words = {
  number: (value: number | undefined): string =>
    value === undefined ? '–' : numbers.format(value),
  percent: (share: number | undefined): string =>
    share === undefined ? '–' : `${numbers.format(share * 100)} %`,
  seconds: (value: number | undefined): string =>
    value === undefined ? '–' : duration(value * 1_000),
  /** The script adds the reader's own time. */
  time: (date: Date | undefined): Html | string =>
    date === undefined
      ? '–'
      : new Html(`<time datetime="${date.toISOString()}">${utcSeconds(date)} UTC</time>`),
  partnerLink: (name: string): Html =>
    new Html(`<a href="/partners/${encodeURIComponent(name)}">${escaped(name)}</a>`),
  activeOf: ({ active, inactive }: PartnerView['keys']): string =>
    `${active} of ${active + inactive}`,
  /** In a new tab, so that a list stays. */
  request: (id: string): Html =>
    new Html(
      `<a href="/requests/${encodeURIComponent(id)}" target="_blank" rel="noopener">${escaped(id)}</a>`,
    ),
  bad: (text: string): Html => new Html(`<span class="bad">${escaped(text)}</span>`),
  /** The first cell names its row; a small screen scrolls the table, not the page. */
  table: (label: string, headers: readonly string[], rows: readonly (readonly unknown[])[]) => {
    const cells = (row: readonly unknown[], tag: (column: number) => string): string =>
      row
        .map((value, column) => {
          const isNumber = rows.every((one) => typeof one[column] === 'number');
          const shown = typeof value === 'number' ? numbers.format(value) : (value ?? '');
          const open = tag(column) + (isNumber ? ' class="n"' : '');
          return `<${open}>${escaped(shown)}</${open.slice(0, 2)}>`;
        })
        .join('');
    const body = rows.map((row) =>
      cells(row, (column) => (column === 0 ? 'th scope="row"' : 'td')),
    );
    return new Html(
      `<div class="scroll" tabindex="0" role="region" aria-label="${escaped(label)}"><table>` +
        `<thead><tr>${cells(headers, () => 'th scope="col"')}</tr></thead>` +
        `<tbody><tr>${body.join('</tr><tr>')}</tr></tbody></table></div>`,
    );
  },
  switchedOffBy,
  keyStatusInWords,
};

export interface Context {
  readonly person: Person | undefined;
  readonly oidc: boolean;
  readonly now: Date;
}

export type Show = (
  request: FastifyRequest,
  reply: FastifyReply,
  page: string,
  model: { readonly title: string; readonly status?: number } & Readonly<Record<string, unknown>>,
) => FastifyReply;

/** Shows a page of one sentence. */
export type Say = (
  request: FastifyRequest,
  reply: FastifyReply,
  status: number,
  words: string,
) => FastifyReply;

/** `contextOf` says who asks. */
export function pages(contextOf: (request: FastifyRequest) => Context): Show {
  return (request, reply, page, model) => {
    const html = eta.render(page, {
      ...words,
      ...contextOf(request),
      ...model,
      csrf: reply.generateCsrf(),
    });
    return reply
      .code(model.status ?? 200)
      .type('text/html; charset=utf-8')
      .header('cache-control', 'no-store')
      .send(html);
  };
}
