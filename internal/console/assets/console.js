/* Adds the reader's own time, draws the charts, and refreshes the first page. */
const REFRESH_MS = 10_000;
const own = new Intl.DateTimeFormat(undefined, { dateStyle: 'short', timeStyle: 'medium' });
let charts = [];
let paused = false;

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

async function draw() {
  const places = [...document.querySelectorAll('[data-chart]')];
  if (places.length === 0 || globalThis.uPlot === undefined) return;
  const rounds = await (await fetch('/history.json')).json();
  for (const chart of charts) chart.destroy();
  charts = places.map((place) => {
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

async function refresh() {
  const main = document.querySelector('main');
  // A person who is reading by keyboard or marks a text must not lose the place.
  const busy = main.contains(document.activeElement) && document.activeElement !== main;
  if (paused || document.hidden || busy || !getSelection().isCollapsed) return;
  const response = await fetch(location.href);
  if (!response.ok || response.redirected) return location.reload();
  const page = new DOMParser().parseFromString(await response.text(), 'text/html');
  main.replaceChildren(...page.querySelector('main').childNodes);
  await start();
}

async function start() {
  addOwnTimes();
  const button = document.querySelector('#pause');
  if (button === null) return;
  button.hidden = false;
  button.addEventListener('click', () => {
    paused = !paused;
    button.textContent = paused ? 'Go on refreshing' : 'Pause refreshing';
    button.blur();
  });
  await draw();
}

await start();
if (document.querySelector('#pause') !== null) {
  setInterval(() => void refresh().catch(() => undefined), REFRESH_MS);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => void draw());
  addEventListener('resize', () => void draw());
}
