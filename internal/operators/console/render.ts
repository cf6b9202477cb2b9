/** Turns models into pages: escaped, printable, and never cached. */
import { createHash } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { Eta } from 'eta';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { DAY_MS, type Clock } from '../../platform/process/clock.ts';
import { printable } from '../../application/fields.ts';
import { duration } from '../view/terminal.ts';
import { formOwner } from './sign-in.ts';
import type { State } from '../../submission/states.ts';
import { addressOfAsset, iconOf, styles } from './assets.ts';
import looks from './looks.json' with { type: 'json' };
import titles from './titles.json' with { type: 'json' };
import { causesOf, keyStatusInWords, switchedOffBy } from '../view/partners.ts';
import { capital, fieldInWords, reasonInWords, reasonName } from '../view/reason-words.ts';
import { toneOf } from '../view/request.ts';
import type { Reading } from '../view/read-as.ts';
import { totalOf, type FoundRow, type Mark } from '../view/search.ts';
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
    /**
     * A page of one sentence; `back` is where it leads, in place of the first page. `sent` can be
     * sent again.
     */
    say(
      status: number,
      sentence: string,
      back?: { readonly href: string; readonly name: string },
      sent?: Readonly<Record<string, string>>,
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

/**
 * Differs between installations, so that nobody takes one for another. Red to green mean states, blue
 * is a link: what is left are 25 hues about cyan and 45 from purple to pink.
 */
export function colourOf(place: string): string {
  const left = createHash('sha256').update(place).digest().readUInt16BE() % 70;
  return `hsl(${left < 25 ? 175 + left : 260 + left} 75% 45%)`;
}

const numbers = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const shares = new Intl.NumberFormat('en', {
  minimumFractionDigits: 1,
  maximumFractionDigits: 1,
});

/** A time as `internal/operators/view` writes it. */
const UTC = /(\d{4}-\d\d-\d\d) (\d\d:\d\d(?::\d\d(?:\.\d+)?)?) UTC/g;

const PARTNERS_NAMED = 5;
const REQUEST_ID = /\breq_[0-9a-z]{26}\b/g;
/** States whose names are no words of a sentence. */
const RAW_STATE = /\b(?:account_created|dead_lettered|undeliverable)\b/g;
const COMMAND = /"partner-ingest ([^"]*)"/;

/** A key that ends within this time is marked. */
const SOON_MS = 14 * DAY_MS;
/** Beyond, a day of the calendar says more. */
const FAR_MS = 30 * DAY_MS;

/** What is masked has asterisks in commands, for any terminal. */
const dotted = (text: string): string =>
  text.replaceAll(/\*{3,}/g, ({ length }) => '•'.repeat(length));

/** These letters of an id find its request. */
export const shortId = (id: string): string => id.slice(4, 18);

/** What every template may use. */
const words = {
  number: (value: number | undefined): string =>
    value === undefined ? '–' : numbers.format(value < 100 ? value : Math.round(value)),
  /** As in "1 request" and "2 requests". */
  some: (count: number, what: string): string =>
    `${words.number(count)} ${what}${count === 1 ? '' : 's'}`,
  percent: (share: number | undefined): string => {
    if (share === undefined) return '–';
    return share > 0 && share < 0.001 ? '< 0.1 %' : `${shares.format(share * 100)} %`;
  },
  seconds: (value: number | undefined): string =>
    value === undefined ? '–' : duration(Math.ceil(value) * 1_000),
  /** Of a time in milliseconds that was counted in buckets. */
  below: (ms: number | undefined): string => {
    if (ms === undefined) return '–';
    return ms === Infinity ? '> 5 s' : `< ${duration(ms)}`;
  },
  /** A script may show the reader's own time instead. */
  time: (date: Date | undefined): Html | string =>
    date === undefined
      ? '–'
      : new Html(`<time datetime="${date.toISOString()}">${utcSeconds(date)} UTC</time>`),
  /** Without what is the same as now; whole on hover. */
  brief: (date: Date | undefined, now: Date): Html | string => {
    if (date === undefined) return '–';
    const whole = utcSeconds(date);
    const isToday = whole.slice(0, 10) === utcSeconds(now).slice(0, 10);
    const shown = isToday ? whole.slice(11) : whole.slice(5, -3);
    return new Html(`<time datetime="${date.toISOString()}" title="${whole} UTC">${shown}</time>`);
  },
  /** The time of a reading of today. */
  clockTime: (date: Date): Html => {
    const whole = `${utcSeconds(date)} UTC`;
    const at = date.toISOString();
    return new Html(`<time datetime="${at}" title="${whole}">${whole.slice(11)}</time>`);
  },
  /** Of a chart's column. */
  minute: (date: Date): Html => {
    const at = date.toISOString();
    return new Html(`<span data-at="${at}">${at.slice(11, 16)}</span>`);
  },
  /** In the place of a figure that may be false. */
  unknown: (since: Date, now: Date): Html =>
    new Html(`Unknown since ${(words.brief(since, now) as Html).text}`),
  /** A figure of the pods beside older ones. */
  ofPods: (figure: number): Html => {
    const known = `<span class="known${figure > 0 ? '' : ' dim'}">${words.number(figure)}</span>`;
    return new Html(`<span class="pods">${known}<span class="unknown">unknown</span></span>`, true);
  },
  /** As in "3 d". */
  age: (date: Date, now: Date): string =>
    duration(now.getTime() - date.getTime())
      .split(' ', 2)
      .join(' '),
  /** Marks the times in the text, links requests, and names states in people's words. */
  timed: (text: string): Html =>
    new Html(
      dotted(escaped(text))
        .replace(UTC, '<time datetime="$1T$2Z">$&</time>')
        .replace(REQUEST_ID, '<a href="/requests/$&">$&</a>')
        .replace(RAW_STATE, (state) => words.named(`“${words.stateWords(state)}”`, state).text),
    ),
  masked: (text: string): Html => new Html(dotted(escaped(text))),
  partnerLink: (name: string): Html =>
    new Html(`<a href="/partners/${encodeURIComponent(name)}">${escaped(name)}</a>`),
  /** A few of them, and how many more there are. */
  partnerLinks: (names: readonly string[]): Html => {
    const links = names.slice(0, PARTNERS_NAMED).map((name) => words.partnerLink(name).text);
    const more = names.length - links.length;
    return new Html(links.join(', ') + (more > 0 ? ` and ${words.number(more)} more` : ''));
  },
  /** As in "1 active, 1 ended". */
  keysInWords: (counts: Readonly<Record<string, number>>): Html | string => {
    const some = Object.entries(counts).filter(([, count]) => count > 0);
    const said = some.map(([status, count]) => `${count} ${status}`).join(', ');
    return said === '' ? '–' : words.nowrap(said);
  },
  totalOf,
  shortId,
  /**
   * Opens in a new tab, so that what was found stays; with the query string of a `list`, the page
   * leads back and on.
   */
  request: (id: string, list = '', said?: string | Html): Html => {
    const address = `/requests/${encodeURIComponent(id)}${escaped(list)}`;
    const tab = list === '' ? ' target="_blank" rel="noopener"' : '';
    return new Html(
      `<a class="${said ? '' : 'nowrap'}" href="${address}" title="${escaped(id)}"${tab}>${escaped(said ?? shortId(id))}</a>`,
    );
  },
  /** A figure that leads to the list it counts. */
  listLink: (address: string, count: number): Html =>
    new Html(`<a href="${escaped(address)}">${numbers.format(count)}</a>`, true),
  /** Leads to the orders for all of a list of dead letters. */
  decision: (list: string, count: number): Html =>
    new Html(
      `<a class="button" href="${escaped(list)}#why">Retry or end ${numbers.format(count)} …</a>`,
      true,
    ),
  /** A part of an order of many. */
  orderLink: (id: string, count = 0): Html =>
    new Html(`<a href="/orders/many/${escaped(id)}">${words.some(count, 'request')}</a>`),
  capital,
  asset: addressOfAsset,
  styles,
  icon: (name: string): Html => new Html(iconOf(name)),
  nowrap: (text: string): Html =>
    new Html(text === '' ? '' : `<span class="nowrap">${dotted(escaped(text))}</span>`),
  /** What is masked in a row of a search, with a mark on what was searched by. */
  foundIn: (row: FoundRow & { readonly mark?: Mark }, column: Mark[0]): Html => {
    const [marked, from, to] = row.mark ?? [];
    const text = words.nowrap(row[column]);
    if (marked !== column || row[column].slice(from, to) === '') return text;
    const parts = [row[column].slice(0, from), row[column].slice(from, to), row[column].slice(to)];
    const [before, mark, after] = parts.map((part) => dotted(escaped(part)));
    return new Html(`<span class="nowrap">${before}<mark>${mark}</mark>${after}</span>`);
  },
  /** A figure in front of a bar of its share; what is nothing has none. */
  barred: (share: number, figure: string, tone = ''): Html => {
    const said = figure === '' ? '' : `<span>${escaped(figure)}</span>`;
    const bar = `<svg class="bar ${tone}" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect width="${Math.min(1, share) * 100}" height="6"/></svg>`;
    return share > 0
      ? new Html(`<span class="barred">${said}${bar}</span>`)
      : new Html(`<span class="barred dim">${said}</span>`);
  },
  /** Of requests that failed. */
  shareBar: (share: number | undefined): Html =>
    words.barred(share ?? 0, words.percent(share), share && share >= 0.5 ? 'bad' : 'warn'),
  /** The course of a figure, small. */
  course: (values: readonly number[]): Html => new Html(eta.render('spark', { values })),
  /** How far that is, or the day if that is far; the time itself on hover. */
  far: (date: Date | undefined, now: Date, tone = ''): Html | string => {
    if (date === undefined) return '–';
    const whole = utcSeconds(date);
    const isFar = Math.abs(date.getTime() - now.getTime()) > FAR_MS;
    const said = isFar ? whole.slice(0, 10) : fromNow(date, now);
    return new Html(`<span class="nowrap ${tone}" title="${whole} UTC">${said}</span>`);
  },
  /** Of an end, which may be soon. */
  until: (date: Date | undefined, now: Date): Html | string =>
    words.far(date, now, date && date.getTime() - now.getTime() < SOON_MS ? 'warn' : ''),
  sign: (look: string): Html => new Html(iconOf(lookOf(look)[1]!)),
  toneOf,
  /** Of an order by its name in an address or in the trail; undefined if that names none. */
  orderTitle: (order: string): string | undefined => {
    const all: Readonly<Record<string, string>> = titles;
    return all[order] ?? all[order.replace(/^(?:account|partner|keys) /, '')];
  },
  stateWords: (state: string): string => lookOf(state)[0]!,
  /** The name that commands and lists use is shown on hover. */
  badge: (state: string, tone: string): Html => {
    const [said = '', sign = ''] = lookOf(state);
    const shown = iconOf(sign) + escaped(said);
    return new Html(`<span class="pill ${tone}" title="${escaped(state)}">${shown}</span>`);
  },
  /** Only an exception is marked. */
  statusBadge: (status: string, onHold = false): Html => {
    const badge =
      status === 'active'
        ? new Html(`<span class="dim">${words.stateWords(status)}</span>`)
        : words.badge(status, status === 'disabled' ? 'bad' : 'quiet');
    return onHold ? new Html(`${badge.text}, on hold`) : badge;
  },
  badgeOf: (state: State): Html => words.badge(state, toneOf(state)),
  /** The name that programs use is shown on hover. */
  named: (said: string, name: string): Html =>
    new Html(
      said === name ? escaped(said) : `<span title="${escaped(name)}">${escaped(said)}</span>`,
    ),
  searchedAs: {
    id: 'id',
    email: 'e-mail address',
    domain: 'domain of e-mail addresses',
    emailStart: 'beginning of an e-mail address',
    ein: 'EIN',
    name: 'business name',
  } satisfies Readonly<Record<Reading['as'], string>>,
  reasonInWords,
  reason: (one: Parameters<typeof reasonName>[0]): Html =>
    words.named(reasonInWords(one), reasonName(one)),
  fieldInWords,
  /** Below what they explain, or behind it. */
  lines: (said: string, lines: readonly (Html | string)[], between = '<br>'): Html =>
    new Html([said, ...lines].map(escaped).join(between)),
  folded: (said: string, lines: readonly (Html | string)[]): Html | string =>
    lines.length === 0
      ? said
      : new Html(
          `<details><summary>${escaped(said)}</summary>${lines.map(escaped).join('<br>')}</details>`,
        ),
  requests: (ids: readonly string[]): Html | string =>
    words.folded(
      words.some(ids.length, 'request'),
      ids.map((id) => words.request(id)),
    ),
  causesOf,
  /** Replaced by this installation's command. */
  run: (order: string): Html => commandOf('partner-ingest', order),
  told: (text: string): Html => words.timed(text),
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
    runbooks,
    place,
    deadLetters,
  }: {
    readonly oidc: boolean;
    readonly clock: Clock;
    readonly command: string;
    /** Where the runbooks are served, if they are. */
    readonly runbooks?: string | undefined;
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
  app.decorateReply('page', function page(this: FastifyReply, name: string, model: Model) {
    const html = htmlOf(name, {
      person: this.request.person,
      oidc,
      place,
      runbooks,
      colour: colourOf(place),
      deadLetters: deadLetters(),
      run,
      told,
      now: clock.now(),
      ...model,
      csrf: this.generateCsrf({ userInfo: formOwner(this.request) }),
    });
    return this.code(model.status ?? 200)
      .type('text/html; charset=utf-8')
      .header('cache-control', 'no-store')
      .send(html);
  });
  app.decorateReply('say', function say(this: FastifyReply, status, message, back, sent = {}) {
    const title = TITLES[status] ?? 'Not done';
    return this.page('message', { title, status, message, back, sent: Object.entries(sent) });
  });
}
