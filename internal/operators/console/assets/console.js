/* Shows times as UTC or local, draws the charts, and keeps the first page fresh, or says that it is not. */
const REFRESH_MS = 10_000;
const LOGGED_OUT = 'you are logged out';
const main = document.querySelector('main');
const bar = document.querySelector('#stale');
let charts = [];
let rounds = [];
let paused = false;
/** Why the last refresh has brought nothing. */
let failed;
let fresh;

const isLocal = () => localStorage.getItem('times') === 'local';

/** As in "2026-11-27 10:03:11 +01:00". */
function localTime(date) {
  const offset = -date.getTimezoneOffset();
  const [hours, minutes] = [Math.trunc(Math.abs(offset) / 60), Math.abs(offset) % 60];
  const zone = [hours, minutes].map((part) => String(part).padStart(2, '0')).join(':');
  const text = new Date(date.getTime() + offset * 60_000).toISOString().slice(0, 19);
  return `${text.replace('T', ' ')} ${offset < 0 ? '-' : '+'}${zone}`;
}

/** One time in each place: what the page came with, or the reader's own. */
function showTimes() {
  for (const time of document.querySelectorAll('time')) {
    time.dataset.utc ??= time.textContent;
    const date = new Date(time.dateTime);
    time.textContent = isLocal() ? localTime(date) : time.dataset.utc;
  }
  const button = document.querySelector('#zone');
  button.hidden = false;
  button.textContent = isLocal() ? 'Show UTC' : 'Show local times';
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
  partner: [
    ['completed', '--good', ({ good }) => good],
    ['open', '--link', ({ open }) => open],
    ['rejected, closed', '--warn', ({ other }) => other],
    ['not delivered', '--bad', ({ bad }) => bad],
    ['turned away', '--soft', ({ away }) => away],
  ],
};

/** A chart of its own values has them by column. */
function rowsOf(place) {
  if (place.dataset.values === undefined) return rounds;
  const columns = JSON.parse(place.dataset.values);
  return columns.at.map((_, row) =>
    Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values[row]])),
  );
}

const short = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 });
const DAY_S = 86_400;
const TEN_MINUTES_S = 600;

/** As wide as its longest value. */
function valueAxis(chart, values) {
  const longest = Math.max(0, ...(values ?? []).map(({ length }) => length));
  return Math.ceil(longest * 7) + 20;
}

/** `seconds` of UTC, as the switch says; more than a day is named by dates. */
function timeLabels(chart, seconds) {
  const { min, max } = chart.scales.x;
  const [from, to] = max - min > DAY_S ? [5, 10] : [11, max - min < TEN_MINUTES_S ? 19 : 16];
  return seconds.map((one) => {
    const date = new Date(one * 1e3);
    const text = isLocal() ? localTime(date).replace(' ', 'T') : date.toISOString();
    return text.slice(from, to);
  });
}

const isNone = (value) => value === null || value === undefined;

/** A line does not show a point without neighbours. */
const lonePoints = (chart, series) =>
  chart.data[series].flatMap((value, index, all) =>
    !isNone(value) && isNone(all[index - 1]) && isNone(all[index + 1]) ? [index] : [],
  );

function draw() {
  for (const chart of charts) chart.destroy();
  charts = [];
  if (globalThis.uPlot === undefined) return;
  charts = [...document.querySelectorAll('[data-chart]')].map((place) => {
    const lines = LINES[place.dataset.chart];
    const font = '12px system-ui, sans-serif';
    const axis = { font, stroke: colour('--soft'), grid: { stroke: colour('--line'), width: 1 } };
    const rows = rowsOf(place);
    const options = {
      width: place.clientWidth,
      height: 180,
      // Half a label stands beside the last point, and half a line above the peak.
      padding: [12, 32, 0, 0],
      tzDate: (seconds) => {
        const date = new Date(seconds * 1e3);
        return isLocal() ? date : globalThis.uPlot.tzDate(date, 'Etc/UTC');
      },
      scales: { y: { range: (_, least, most) => [0, Math.max(1, (most ?? 1) * 1.1)] } },
      axes: [
        { ...axis, size: 32, space: 70, values: timeLabels },
        { ...axis, size: valueAxis, values: (_, all) => all.map((one) => short.format(one)) },
      ],
      series: [
        { label: 'at', value: (chart, at) => (isNone(at) ? '' : timeLabels(chart, [at])[0]) },
        ...lines.map(([label, name]) => ({
          label,
          stroke: colour(name),
          width: 2,
          spanGaps: false,
          points: { show: true, size: 6, fill: colour(name), filter: lonePoints },
          value: (_, value) => (isNone(value) ? '' : short.format(value)),
        })),
      ],
    };
    const data = [
      rows.map(({ at }) => at),
      ...lines.map(([, , value]) => rows.map((row) => value(row))),
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
  showTimes();
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
  showTimes();
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

showTimes();
addCopyButtons();
document.addEventListener('click', ({ target }) => {
  if (target.id !== 'zone') return;
  localStorage.setItem('times', isLocal() ? 'utc' : 'local');
  showTimes();
  draw();
});
for (const condition of ['(prefers-color-scheme: dark)', 'print'])
  matchMedia(condition).addEventListener('change', draw);
addEventListener('resize', draw);
draw();
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
  setInterval(judge, 1_000);
  await readRounds().then(draw, (error) => {
    failed = reasonOf(error);
  });
  for (;;) {
    await pause(REFRESH_MS);
    await refresh();
  }
}
