/* Shows times as UTC or local, leads by keys, and keeps pages fresh, or says that they are not. */
const REFRESH_MS = 10_000;
/** A pause between two letters is shorter. */
const SUGGEST_AFTER_MS = 150;
const SUGGEST_WITHIN_MS = 2_000;
const SUGGEST_LEAST = 2;
const LOGGED_OUT = 'you are logged out';
const main = document.querySelector('main');
const bar = document.querySelector('#stale');
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

/** Without what is the same as now. */
const briefly = (local) =>
  local.slice(0, 10) === localTime(new Date()).slice(0, 10)
    ? local.slice(11, 19)
    : local.slice(5, 16);

/** One time in each place: what the page came with, or the reader's own. */
function showTimes() {
  for (const time of document.querySelectorAll('time')) {
    time.dataset.utc ??= time.textContent;
    const local = localTime(new Date(time.dateTime));
    const isBrief = time.title !== '';
    if (isBrief)
      time.title = isLocal() ? local : `${time.dateTime.slice(0, 19).replace('T', ' ')} UTC`;
    const shown = isBrief ? briefly(local) : local;
    time.textContent = isLocal() ? shown : time.dataset.utc;
  }
  for (const label of document.querySelectorAll('[data-at]')) {
    label.dataset.utc ??= label.textContent;
    const [from, to] = label.dataset.days === 'true' ? [5, 10] : [11, 16];
    const local = localTime(new Date(label.dataset.at)).slice(from, to);
    label.textContent = isLocal() ? local : label.dataset.utc;
  }
  const button = document.querySelector('#zone');
  button.hidden = false;
  button.textContent = isLocal() ? 'Show UTC' : 'Show local times';
}

/** A clock that is set back, or stands still while the machine sleeps, makes nothing look new. */
const clocks = () => [Date.now(), performance.now()];
const msSince = (from) => Math.max(...clocks().map((now, index) => now - from[index]));

/** What the page says of its own age; `from` is the time before it was asked for. */
function noteFresh(from) {
  const { since, leftPods, leftStored, why } = document.querySelector('#fresh').dataset;
  fresh = { since, why, from, leftMs: { pods: Number(leftPods), stored: Number(leftStored) } };
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

async function refresh() {
  if (waits() !== undefined) return;
  const from = clocks();
  failed = 'it is being read again';
  try {
    const text = await read(location.href);
    const page = new DOMParser().parseFromString(text, 'text/html');
    if (page.querySelector('#fresh') === null) throw new Error('something else answers here');
    // The reader may have begun something meanwhile.
    if (waits() !== undefined) return;
    replace(page, '#fresh');
    show(page, ['main', ...(document.activeElement?.closest('nav') ? [] : ['nav'])]);
    noteFresh(from);
    failed = undefined;
  } catch (error) {
    failed = reasonOf(error);
  }
  judge();
}

const replace = (page, part) => document.querySelector(part).replaceWith(page.querySelector(part));

/** Beside the time of reading, once a script renews the page. */
const markLive = (isLive) => (document.querySelector('.live').hidden = !isLive);

/** The focus, what was scrolled and what is unfolded stay as they are. */
function show(page, parts) {
  const keyOf = ({ tagName, id, ariaLabel, href }) => [tagName, id, ariaLabel, href].join(' ');
  const all = () => [...main.querySelectorAll('a, button, input, [tabindex]')];
  const focused = main.contains(document.activeElement) ? document.activeElement : undefined;
  const key = focused && keyOf(focused);
  const place =
    focused &&
    all()
      .filter((one) => keyOf(one) === key)
      .indexOf(focused);
  const opened = new Set([...main.querySelectorAll('details[open]')].map(keyOf));
  const scrolled = new Map(all().map((one) => [keyOf(one), one.scrollLeft]));
  for (const part of parts)
    document.querySelector(part).replaceChildren(...page.querySelector(part).childNodes);
  showTimes();
  addCopyButtons();
  for (const one of main.querySelectorAll('details')) one.open ||= opened.has(keyOf(one));
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
  button.textContent = paused ? 'Go on' : 'Pause';
  button.ariaLabel = `${button.textContent} refreshing`;
  document.querySelector('#waits').textContent = waiting ? `Not now: ${waiting}.` : '';
  const old = Object.keys(fresh.leftMs).filter((part) => msSince(fresh.from) >= fresh.leftMs[part]);
  const isStale = old.length > 0;
  markLive(!isStale && waiting === undefined);
  button.hidden = isStale && !paused;
  bar.className = old.join(' ');
  const words = isStale ? `${fresh.since} ${why}` : '';
  if (bar.dataset.words === words) return;
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
}

/** A command is there to be pasted. */
function addCopyButtons() {
  for (const code of document.querySelectorAll('code.command:not([data-copy])')) {
    const { name } = code.dataset;
    if (name === 'the link') code.textContent = location.href;
    const button = Object.assign(document.createElement('button'), {
      type: 'button',
      textContent: name === 'the link' ? 'Copy the link' : 'Copy',
      ariaLabel: `Copy ${name}`,
    });
    button.addEventListener('click', () => {
      getSelection().selectAllChildren(code);
      // Unlike the Clipboard API, this needs no permission of the browser.
      button.textContent = document.execCommand('copy') ? 'Copied' : 'Marked';
      button.ariaLabel = `${button.textContent} ${name}`;
      if (button.textContent === 'Copied') getSelection().removeAllRanges();
    });
    code.dataset.copy = '';
    code.after(' ', button);
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Renews what the page shows once it has changed, or says so if that would destroy something. */
async function renew(shown) {
  if (document.hidden) return;
  const page = new DOMParser().parseFromString(await read(shown.dataset.of), 'text/html');
  const found = page.querySelector('#live')?.dataset;
  if (found === undefined) throw new Error('something else answers here');
  const isSame = found.seen === shown.dataset.seen;
  const isKept = shown.dataset.kept !== undefined || waits() !== undefined;
  if (isSame || !isKept) replace(page, '#read');
  showTimes();
  markLive(isSame || !isKept);
  if (isSame) return told?.isFault ? tell('') : undefined;
  if (!isKept) {
    show(page, ['#live']);
    Object.assign(shown.dataset, found);
    told = undefined;
  }
  if (found.what !== undefined)
    tell(`${found.what}.${isKept ? ' This page shows how it was.' : ''}`, { isKept });
}

let told;
/** Says the words above the request, once. */
function tell(words, { isKept = false, isFault = false } = {}) {
  if (told?.words === words) return;
  told = { words, isFault };
  const line = document.querySelector('#changed');
  line.hidden = words === '';
  line.textContent = words;
  if (!isKept) return;
  const { of: href } = document.querySelector('#live').dataset;
  line.append(' ', Object.assign(document.createElement('a'), { href, textContent: 'Reload' }));
}

const q = document.querySelector('#q');
const suggested = document.querySelector('#suggested');
let asking;
/** Offers what the text may name; it is sent in a form's body, never in an address. */
async function suggest() {
  asking?.abort();
  const { signal } = (asking = new AbortController());
  await pause(SUGGEST_AFTER_MS);
  if (signal.aborted) return;
  const body = new URLSearchParams(new FormData(q.form));
  const within = AbortSignal.any([signal, AbortSignal.timeout(SUGGEST_WITHIN_MS)]);
  const isLong = q.value.trim().length >= SUGGEST_LEAST;
  const text = isLong
    ? await fetch('/find/suggest', { method: 'POST', body, redirect: 'manual', signal: within })
        .then((response) => (response.ok ? response.text() : ''))
        .catch(() => '')
    : '';
  if (!signal.aborted) offer(text);
}

function offer(html) {
  const { body } = new DOMParser().parseFromString(html, 'text/html');
  suggested.replaceChildren(...body.childNodes);
  const { length } = suggested.children;
  suggested.hidden = length === 0 || !q.form.contains(document.activeElement);
  const words = suggested.hidden ? '' : `${length} suggestions, by arrow down`;
  document.querySelector('#suggests').textContent = words;
}

/** Also what is still asked for is not offered. */
function offerNothing() {
  asking?.abort();
  offer('');
}

/** By arrows through the field and what is offered. */
function choose(event) {
  const steps = { ArrowDown: 1, ArrowUp: -1 };
  if (event.key === 'Escape') offerNothing();
  const all = [q, ...suggested.querySelectorAll('a, button')];
  const next = all[all.indexOf(document.activeElement) + (steps[event.key] ?? NaN)];
  if (suggested.hidden || next === undefined) return;
  event.preventDefault();
  next.focus();
}

/** With `j` and `k`: the next row of a list, or the next request of it. */
function step(isOn) {
  const link = document.querySelector(`a[rel=${isOn ? 'next' : 'prev'}]`);
  if (link !== null) return link.click();
  const rows = [...document.querySelectorAll('.whole th a')];
  rows[rows.indexOf(document.activeElement) + (isOn ? 1 : -1)]?.focus();
}

/** Typing in the field of a choice chooses it; another choice takes back what was typed. */
document.addEventListener('input', ({ target: { id, type, value, form } }) => {
  const own = form?.querySelector('.own input');
  if (!own) return;
  if (id === own.id) form.querySelector('[type=radio][value=""]').checked = true;
  else if (type === 'radio' && value !== '') own.value = '';
});

showTimes();
addCopyButtons();
document.addEventListener('click', ({ target }) => {
  if (target.id !== 'zone') return;
  localStorage.setItem('times', isLocal() ? 'utc' : 'local');
  showTimes();
});
/** As on many sites; a field that has the focus gets the letter. */
document.addEventListener('keydown', (event) => {
  const isTyping = event.target.matches?.('input, textarea, select, [contenteditable]');
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'j' || event.key === 'k') step(event.key === 'j');
  if (event.key !== '/') return;
  event.preventDefault();
  q?.select();
});
if (q !== null) {
  q.addEventListener('input', () => void suggest());
  q.form.addEventListener('keydown', choose);
  q.form.addEventListener('focusout', ({ relatedTarget }) => {
    if (!q.form.contains(relatedTarget)) offerNothing();
  });
  q.form.addEventListener('submit', offerNothing);
}
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
  for (;;) {
    await pause(REFRESH_MS);
    await refresh();
  }
}
const live = document.querySelector('#live');
if (live !== null) {
  markLive(true);
  for (;;) {
    await pause(Number(live.dataset.everyMs ?? REFRESH_MS));
    await renew(live).catch((error) => {
      markLive(false);
      tell(`This page is not renewed: ${reasonOf(error)}.`, { isFault: true });
    });
  }
}
