/** Turns models into pages: escaped, printable, and never cached. */
import { fileURLToPath } from 'node:url';
import { Eta } from 'eta';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { duration, printable } from '../platform/terminal.ts';
import { fromNow, utcSeconds } from '../view/times.ts';
import type { Person } from './person.ts';

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** What a direction mark or a control would do to a page, it does to a terminal, too. */
function escaped(value: unknown): string {
  return printable(String(value)).replace(/[&<>"']/g, (letter) => ESCAPES[letter] ?? '');
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
  /** The script adds the reader's own time. Safe HTML. */
  time: (date: Date | undefined): string =>
    date === undefined
      ? '–'
      : `<time datetime="${date.toISOString()}">${utcSeconds(date)} UTC</time>`,
  fromNow,
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

export interface Messages {
  show(request: FastifyRequest, reply: FastifyReply, status: number, words: string): FastifyReply;
}

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
