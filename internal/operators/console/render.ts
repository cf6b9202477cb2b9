/** Turns models into pages: escaped, printable, and never cached. */
import { createHash } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { Eta } from 'eta';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Clock } from '../../platform/process/clock.ts';
import { printable } from '../../application/fields.ts';
import { duration } from '../view/terminal.ts';
import { formOwner, type ConsolePerson } from './sign-in.ts';
import type { State } from '../../submission/states.ts';
import { addressOfAsset, iconOf } from './assets.ts';
import looks from './looks.json' with { type: 'json' };
import { causesOf, keyStatusInWords, switchedOffBy, type PartnerView } from '../view/partners.ts';
import { toneOf } from '../view/request.ts';
import { fromNow, utcSeconds } from '../view/words.ts';

interface Model {
  readonly title: string;
  /** 200 if absent. */
  readonly status?: number;
  readonly [name: string]: unknown;
}

declare module 'fastify' {
  interface FastifyReply {
    page(name: string, model: Model): FastifyReply;
    /** A page of one sentence; `back` is where it leads, in place of the first page. */
    say(
      status: number,
      sentence: string,
      back?: { readonly href: string; readonly name: string },
    ): FastifyReply;
  }
}

/** Text that needs no escaping. */
class Html {
  readonly text: string;
  readonly isNumber: boolean;

  constructor(text: string, isNumber = false) {
    this.text = text;
    this.isNumber = isNumber;
  }
}

const { escapeFunction: escapeHtml } = new Eta().config;

/** Also replaces control and direction marks, which garble a page. */
function escaped(value: unknown): string {
  return value instanceof Html ? value.text : escapeHtml(printable(String(value)));
}

const eta = new Eta({
  views: fileURLToPath(new URL('pages', import.meta.url)),
  cache: true,
  escapeFunction: escaped,
});

/** People's words and an icon for a state; one that only a newer version knows has its own name. */
const lookOf = (state: string) =>
  (looks as Readonly<Record<string, string[]>>)[state] ?? [state, 'circle-help'];

/** Differs between installations, so that nobody takes one for another; red to green mean states. */
export const colourOf = (place: string): string =>
  `hsl(${180 + (createHash('sha256').update(place).digest().readUInt16BE() % 150)} 75% 45%)`;

const numbers = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

/** A time as `internal/operators/view` writes it. */
const UTC = /(\d{4}-\d\d-\d\d) (\d\d:\d\d(?::\d\d(?:\.\d+)?)?) UTC/g;

const REQUEST_ID = /\breq_[0-9a-z]{26}\b/g;
const COMMAND = /"partner-ingest ([^"]*)"/;

/** What every template may use. */
const words = {
  number: (value: number | undefined): string =>
    value === undefined ? '–' : numbers.format(value < 100 ? value : Math.round(value)),
  percent: (share: number | undefined): string => {
    if (share === undefined) return '–';
    return share > 0 && share < 0.001 ? '< 0.1 %' : `${numbers.format(share * 100)} %`;
  },
  seconds: (value: number | undefined): string =>
    value === undefined ? '–' : duration(value * 1_000),
  /** Of a time in milliseconds that was counted in buckets. */
  below: (ms: number | undefined): string => {
    if (ms === undefined) return '–';
    return ms === Infinity ? 'over 5 s' : `below ${duration(ms)}`;
  },
  /** A script may show the reader's own time instead. */
  time: (date: Date | undefined): Html | string =>
    date === undefined
      ? '–'
      : new Html(`<time datetime="${date.toISOString()}">${utcSeconds(date)} UTC</time>`),
  /** Also how far that is from `now`. */
  timeAnd: (date: Date | undefined, now: Date): Html | string =>
    date === undefined ? '–' : words.timed(`${utcSeconds(date)} UTC, ${fromNow(date, now)}`),
  /** Marks the times in the text, and links requests. */
  timed: (text: string): Html =>
    new Html(
      escaped(text)
        .replace(UTC, '<time datetime="$1T$2Z">$&</time>')
        .replace(REQUEST_ID, '<a href="/requests/$&">$&</a>'),
    ),
  partnerLink: (name: string): Html =>
    new Html(`<a href="/partners/${encodeURIComponent(name)}">${escaped(name)}</a>`),
  activeOf: ({ active, inactive }: PartnerView['keys']): string =>
    `${active} of ${active + inactive}`,
  /**
   * Opens in a new tab, so that what was found stays; with the query string of a `list`, the page
   * leads back and on.
   */
  request: (id: string, list = ''): Html => {
    const address = `/requests/${encodeURIComponent(id)}${escaped(list)}`;
    const tab = list === '' ? ' target="_blank" rel="noopener"' : '';
    return new Html(`<a class="nowrap" href="${address}"${tab}>${escaped(id)}</a>`);
  },
  /** A figure that leads to the list it counts. */
  listLink: (address: string, count: number): Html =>
    new Html(`<a href="${escaped(address)}">${numbers.format(count)}</a>`, true),
  asset: addressOfAsset,
  icon: (name: string): Html => new Html(iconOf(name)),
  nowrap: (text: string): Html =>
    new Html(text === '' ? '' : `<span class="nowrap">${escaped(text)}</span>`),
  /** A figure beside a bar of its share. */
  barred: (share: number, figure: string, tone = ''): Html =>
    new Html(
      `<span class="nowrap"><svg class="bar ${tone}" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect width="${Math.min(1, share) * 100}" height="6"/></svg>${escaped(figure)}</span>`,
    ),
  sign: (look: string): Html => new Html(iconOf(lookOf(look)[1]!)),
  toneOf,
  stateWords: (state: string): string => lookOf(state)[0]!,
  /** The name that commands and lists use is shown on hover. */
  badge: (state: string, tone: string): Html => {
    const [said = '', sign = ''] = lookOf(state);
    const shown = iconOf(sign) + escaped(said);
    return new Html(`<span class="pill ${tone}" title="${escaped(state)}">${shown}</span>`);
  },
  statusBadge: (status: string): Html =>
    words.badge(status, { active: 'good', 'no keys': 'other' }[status] ?? 'bad'),
  badgeOf: (state: State): Html => words.badge(state, toneOf(state)),
  requests: (ids: readonly string[]): Html => {
    const links = ids.map((id) => words.request(id).text).join('<br>');
    return new Html(`<details><summary>${ids.length} requests</summary>${links}</details>`);
  },
  causesOf,
  /** Replaced by this installation's command. */
  run: (order: string): Html => commandOf('partner-ingest', order),
  told: (text: string): Html => words.timed(text),
  act: (): Html => new Html(''),
  switchedOffBy,
  keyStatusInWords,
};

/** A command as run in this installation; a script adds a button that copies it. */
function commandOf(command: string, order: string): Html {
  const typed = order.replace(/^partner-ingest /, '');
  const [name = ''] = /^[a-z-]+( [a-z-]+(?= |$))*/.exec(typed) ?? [];
  return new Html(
    `<code class="command" data-name="the command ${name}">${escaped(`${command} ${typed}`)}</code>`,
  );
}

/** `model` includes what `reply.page` adds. */
export const htmlOf = (page: string, model: object): string =>
  eta.render(page, { ...words, ...model });

const TITLES: Readonly<Record<number, string>> = {
  200: 'Done',
  403: 'Not allowed',
  404: 'Not found',
  429: 'Too many requests',
  503: 'Not available',
};

/** `@fastify/csrf-protection` must be registered, and `request.person` be known. */
export function addPages(
  app: FastifyInstance,
  {
    oidc,
    clock,
    command,
    place,
    deadLetters,
  }: {
    readonly oidc: boolean;
    readonly clock: Clock;
    readonly command: string;
    /** The name of the installation. */
    readonly place: string;
    readonly deadLetters: () => number;
  },
): void {
  const run = (order: string): Html => commandOf(command, order);
  /** A sentence whose commands are those of this installation. */
  const told = (text: string): Html => {
    const parts = text.split(COMMAND).map((part, at) => (at % 2 ? run(part) : words.timed(part)));
    return new Html(parts.map((one) => one.text).join(''));
  };
  /** A link to the plan, for an operator only. */
  const actFor =
    (person: ConsolePerson | undefined) =>
    (order: { readonly name: string; readonly part: string } | undefined): Html =>
      order === undefined || person?.role !== 'operator'
        ? new Html('')
        : new Html(
            `<a href="/orders/${order.name}/${encodeURIComponent(order.part)}" aria-label="Do it here: ${order.name}">Do it here</a>`,
          );
  app.decorateReply('page', function page(this: FastifyReply, name: string, model: Model) {
    const html = htmlOf(name, {
      person: this.request.person,
      oidc,
      place,
      colour: colourOf(place),
      deadLetters: deadLetters(),
      run,
      told,
      act: actFor(this.request.person),
      now: clock.now(),
      ...model,
      csrf: this.generateCsrf({ userInfo: formOwner(this.request) }),
    });
    return this.code(model.status ?? 200)
      .type('text/html; charset=utf-8')
      .header('cache-control', 'no-store')
      .send(html);
  });
  app.decorateReply('say', function say(this: FastifyReply, status, message, back) {
    return this.page('message', { title: TITLES[status] ?? 'Not done', status, message, back });
  });
}
