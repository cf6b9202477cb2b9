/* Adds the reader's own time, draws the charts, and keeps the first page fresh, or says that it is not. */
const REFRESH_MS = 10_000;
const LOGGED_OUT = 'you are logged out';
const own = new Intl.DateTimeFormat(undefined, { dateStyle: 'short', timeStyle: 'medium' });
const main = document.querySelector('main');
const bar = document.querySelector('#stale');
let charts = [];
let rounds = [];
let paused = false;
/** Why the last refresh has brought nothing. */
let failed;
let fresh;

function addOwnTimes() {
  for (const time of document.querySelectorAll('time:not([data-own])')) {
    time.dataset.own = 'true';
    const small = document.createElement('small');
    small.textContent = ` (${own.format(new Date(time.dateTime))})`;
    time.append(small);
  }
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const sum = (rates, fits) =>
  Object.entries(rates).reduce((all, [key, value]) => (fits(key) ? all + value : all), 0);

/** Each line of a chart: its label, its colour and its value in a round. */
const LINES = {
  answers: [
    ['202', '--good', ({ answers }) => sum(answers, (status) => status === '202')],
    ['4xx', '--warn', ({ answers }) => sum(answers, (status) => status[0] === '4')],
    ['5xx', '--bad', ({ answers }) => sum(answers, (status) => status[0] === '5')],
  ],
  p99: [['ms', '--link', ({ p99Seconds }) => (p99Seconds === undefined ? null : p99Seconds * 1e3)]],
  finished: [
    ['completed', '--good', ({ finished }) => finished.completed ?? 0],
    ['others', '--warn', ({ finished }) => sum(finished, (state) => state !== 'completed')],
  ],
  waiting: [['requests', '--link', ({ waiting }) => waiting ?? null]],
};

function draw() {
  for (const chart of charts) chart.destroy();
  charts = [];
  if (globalThis.uPlot === undefined) return;
  charts = [...document.querySelectorAll('[data-chart]')].map((place) => {
    const lines = LINES[place.dataset.chart];
    const axis = { stroke: colour('--soft'), grid: { stroke: colour('--line'), width: 1 } };
    const options = {
      width: place.clientWidth,
      height: 160,
      scales: {
        y: { range: (_, least, most) => [Math.min(0, least ?? 0), Math.max(1, most ?? 1)] },
      },
      axes: [axis, { ...axis, size: 56 }],
      series: [
        {},
        ...lines.map(([label, name]) => ({
          label,
          stroke: colour(name),
          width: 2,
          spanGaps: false,
        })),
      ],
    };
    const data = [
      rounds.map(({ at }) => at),
      ...lines.map(([, , value]) => rounds.map((round) => value(round))),
    ];
    return new globalThis.uPlot(options, data, place);
  });
}

/** A clock that is set back, or stands still while the machine sleeps, makes nothing look new. */
const clocks = () => [Date.now(), performance.now()];
const msSince = (from) => Math.max(...clocks().map((now, index) => now - from[index]));

/** What the page says of its own age; `from` is the time before it was asked for. */
function noteFresh(from) {
  const { since, leftMs, why } = document.querySelector('#fresh').dataset;
  fresh = { since, why, from, leftMs: Number(leftMs) };
}

/** What a person does that a refresh would destroy. */
function waits() {
  if (paused) return 'you paused it';
  const fields = [...main.querySelectorAll('input:not([type=hidden]), textarea')];
  if (fields.some((field) => field.value !== field.defaultValue))
    return 'it waits for the form that you have begun';
  if (!getSelection().isCollapsed) return 'it waits while a text is marked';
  return document.hidden ? 'it waits to be seen' : undefined;
}

async function read(path) {
  const response = await fetch(path, {
    // To follow it would begin a log-in behind the reader's back.
    redirect: 'manual',
    signal: AbortSignal.timeout(REFRESH_MS),
  });
  if (response.status === 401 || response.type === 'opaqueredirect') throw new Error(LOGGED_OUT);
  if (!response.ok) throw new Error(`the console answers ${response.status}`);
  return response.text();
}

const reasonOf = (error) =>
  error.constructor === Error ? error.message : 'the console does not answer';

async function readRounds() {
  rounds = JSON.parse(await read('/history.json'));
}

async function refresh() {
  if (waits() !== undefined) return;
  const from = clocks();
  failed = 'it is being read again';
  try {
    const [text] = await Promise.all([read(location.href), readRounds()]);
    const page = new DOMParser().parseFromString(text, 'text/html');
    if (page.querySelector('#fresh') === null) throw new Error('something else answers here');
    // The reader may have begun something meanwhile.
    if (waits() !== undefined) return;
    show(page);
    noteFresh(from);
    failed = undefined;
  } catch (error) {
    failed = reasonOf(error);
  }
  judge();
  draw();
}

/** The focus and what was scrolled stay where they are. */
function show(page) {
  const keyOf = ({ tagName, id, ariaLabel, href }) => [tagName, id, ariaLabel, href].join(' ');
  const all = () => [...main.querySelectorAll('a, button, input, [tabindex]')];
  const focused = main.contains(document.activeElement) ? document.activeElement : undefined;
  const key = focused && keyOf(focused);
  const place =
    focused &&
    all()
      .filter((one) => keyOf(one) === key)
      .indexOf(focused);
  const scrolled = new Map(all().map((one) => [keyOf(one), one.scrollLeft]));
  for (const part of ['main', 'footer'])
    document.querySelector(part).replaceChildren(...page.querySelector(part).childNodes);
  addOwnTimes();
  for (const one of all()) one.scrollLeft = scrolled.get(keyOf(one)) ?? 0;
  if (focused === undefined || focused === main) return;
  const same = all().filter((one) => keyOf(one) === key);
  (same[place] ?? same[0] ?? main).focus({ preventScroll: true });
}

/** Old data has a red bar, and nothing beside it is green. */
function judge() {
  const waiting = waits();
  const why = waiting ?? failed ?? fresh.why;
  const button = document.querySelector('#pause');
  button.hidden = false;
  button.textContent = paused ? 'Go on refreshing' : 'Pause refreshing';
  document.querySelector('#waits').textContent = waiting ? `Not now: ${waiting}.` : '';
  const isStale = msSince(fresh.from) >= fresh.leftMs;
  const words = isStale ? `${fresh.since} ${why}` : '';
  if (bar.dataset.words === words) return;
  const changes = bar.hidden === isStale;
  bar.dataset.words = words;
  bar.hidden = !isStale;
  const time = document.createElement('time');
  time.dateTime = fresh.since;
  time.textContent = `${fresh.since.slice(0, 19).replace('T', ' ')} UTC`;
  bar.replaceChildren('Not renewed since ', time, `: ${why}.`);
  if (why === LOGGED_OUT) {
    const link = document.createElement('a');
    Object.assign(link, { href: '/', textContent: 'Log in' });
    bar.append(' ', link);
  }
  addOwnTimes();
  // Its lines have another colour.
  if (changes) draw();
}

/** A command is there to be pasted. */
function addCopyButtons() {
  for (const code of document.querySelectorAll('code.command:not([data-copy])')) {
    const button = Object.assign(document.createElement('button'), {
      type: 'button',
      textContent: 'Copy',
    });
    button.addEventListener('click', () => {
      getSelection().selectAllChildren(code);
      // Unlike the Clipboard API, this needs no permission of the browser.
      button.textContent = document.execCommand('copy') ? 'Copied' : 'Marked';
      if (button.textContent === 'Copied') getSelection().removeAllRanges();
    });
    code.dataset.copy = '';
    code.after(' ', button);
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

addOwnTimes();
addCopyButtons();
if (bar !== null) {
  noteFresh([performance.timeOrigin, 0]);
  judge();
  document.addEventListener('click', ({ target }) => {
    if (target.id !== 'pause') return;
    paused = !paused;
    judge();
    void refresh();
  });
  document.addEventListener('visibilitychange', () => void refresh());
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  addEventListener('resize', draw);
  setInterval(judge, 1_000);
  await readRounds().then(draw, (error) => {
    failed = reasonOf(error);
  });
  for (;;) {
    await pause(REFRESH_MS);
    await refresh();
  }
}
