/** The command `status`: what the console's page Now says, on one screen. */
import { styleText } from 'node:util';
import { printable } from '../../application/fields.ts';
import { Activity } from '../view/activity.ts';
import { nowView } from '../view/now.ts';
import { readPods } from '../view/readings.ts';
import { readStored } from '../view/stored.ts';
import { duration, table } from '../view/terminal.ts';
import { utcSeconds } from '../view/words.ts';
import { EXIT, isOfStore, type Call, type Command } from './command.ts';

/** They and the rest are one screen. */
const PROBLEMS_SHOWN = 18;

type View = ReturnType<typeof nowView>;

export const status: Command = {
  name: 'status',
  positionals: [],
  options: [],
  run: async (call) => {
    const now = call.clock.now();
    const activity = new Activity(now);
    const { processes } = call;
    const [pods, stored] = await Promise.all([readPods(processes), storedOf(call)]);
    activity.stored = { ...activity.stored, ...stored };
    if (processes.length > 0) activity.add(pods, now);
    const view = nowView(activity, now);
    const isBad = view.problems.some(({ weight }) => weight === 'bad');
    const isUnsure = isBad || view.unread.length > 0;
    return {
      json: jsonOf(view, now),
      text: pageOf(view, now),
      // As monitors have it: 1 is a warning, 2 is worse.
      code: isUnsure ? EXIT.usage : view.problems.length > 0 ? EXIT.found : EXIT.ok,
    };
  },
};

/** The pods are of interest also while the database is away. */
async function storedOf(call: Call): Promise<Partial<Activity['stored']>> {
  try {
    const { stores, clock } = call;
    return await readStored({ reads: stores, kept: stores.kept, clock });
  } catch (error) {
    if (!isOfStore(error)) throw error;
    return { fault: call.storeFault(error) };
  }
}

function jsonOf({ problems, unread, putAside, last, traffic, pods, partners }: View, now: Date) {
  return {
    at: now,
    // Of one reading, `since` would be now.
    problems: problems.map(({ partners: theirs, list: _list, ...one }) => ({
      ...one,
      partner: theirs?.join(', '),
      since: undefined,
    })),
    unread,
    put_aside: putAside,
    last_hour: traffic?.hour ?? null,
    waiting: last?.waits ?? null,
    partners: partners.map(({ partner, requests, failed, waiting }) => ({
      partner,
      requests,
      failed,
      waiting,
    })),
    pods: pods.map(({ component, at, ready, answers }) => ({ component, at, ready, answers })),
  };
}

function pageOf({ causes, unread, putAside, last, traffic, pods }: View, now: Date): string {
  const heading = (words: string): string => styleText('bold', words);
  const count = (number: number | undefined): string => (number === undefined ? '–' : `${number}`);
  const problems = causes.flatMap(({ weight, who, what, partners = [], effects }) => [
    [
      weight === 'bad' ? styleText('red', 'FAULT') : styleText('yellow', 'WARNING'),
      printable(`${what} (${`${who} ${partners.join(', ')}`.trim()})`),
    ],
    ...effects.map((one) => ['', printable(`therefore perhaps: ${one.what} (${one.who})`)]),
  ]);
  const lines = [heading(`Now, ${utcSeconds(now)} UTC`)];
  const further = problems.length - PROBLEMS_SHOWN;
  if (problems.length > 0) lines.push(table(problems.slice(0, PROBLEMS_SHOWN), ''));
  else if (unread.length === 0) lines.push(styleText('green', 'Nothing is wrong.'));
  if (further > 0) lines.push(`… and ${further} further lines: see --json, or the console`);
  if (unread.length > 0) lines.push(styleText('red', `Not read: ${unread.join(', ')}.`));
  if (putAside > 0) lines.push(`${putAside} findings of the self-audit are put aside.`);
  const { hour } = traffic ?? {};
  const { account, mail, onHold, oldestSeconds } = last?.waits ?? {};
  const oldest = oldestSeconds === undefined ? '–' : duration(oldestSeconds * 1_000);
  lines.push(
    table([
      [
        heading('Last hour'),
        `${count(hour?.accepted)} accepted (202), ${count(hour?.finished)} finished, ${count(hour?.faults)} answered 5xx, ${count(hour?.turnedAway)} turned away; ${count(hour?.mailsTaken)} e-mails taken by the relay, ${count(hour?.mailsNotTaken)} not`,
      ],
      [
        heading('Waiting'),
        `${count(account)} for an account, ${count(mail)} for the e-mail, ${count(onHold)} on hold; the oldest for ${oldest}`,
      ],
      [
        heading('Ready'),
        [...Map.groupBy(pods, ({ component }) => component || 'unknown')]
          .map(([component, theirs]) => {
            const ready = theirs.filter((pod) => pod.ready);
            return printable(`${component} ${ready.length} of ${theirs.length}`);
          })
          .join(', '),
      ],
    ]),
  );
  return lines.join('\n');
}
