/** `show`: what became of one request. */
import { styleText } from 'node:util';
import { duration, printable, table } from '../platform/process/terminal.ts';
import { isAddress, lookUp, lookUpAddress } from '../view/look-up.ts';
import { requestView, type RequestView, type Tone } from '../view/request.ts';
import type { Happening } from '../view/timeline.ts';
import { utc } from '../view/times.ts';
import { EXIT, foundOr, type Call, type Command, type ExitCode } from './command.ts';
import { FOUND, headed } from './lists.ts';
import { requestIdOrAddress } from './options.ts';

export const show: Command = {
  name: 'show',
  positionals: [requestIdOrAddress],
  options: ['reveal', 'as', 'why'],
  run: showRequest,
};

async function showRequest(call: Call): Promise<ExitCode> {
  const { desk, out, values, clock } = call;
  const { reveal = false } = values;
  const now = clock.now();
  const [name = ''] = call.positionals;
  const byAddress = isAddress(name);
  const found = byAddress ? await lookUpAddress(name, desk) : await lookUp(name, desk, now);
  const action = ['show', ...(byAddress ? ['by address'] : []), ...(reveal ? ['--reveal'] : [])];
  const requestId = 'missing' in found ? {} : { requestId: found._id };
  if (byAddress || reveal) await desk.trail.revealed({ action: action.join(' '), ...requestId });
  const view = await requestView(foundOr(found), desk, { now, reveal });
  if (values.json) out.json(view.json);
  else print(call, view);
  return EXIT.ok;
}

const COLOURS = {
  good: 'green',
  open: 'cyan',
  bad: 'red',
  other: 'yellow',
} as const satisfies Record<Tone, string>;

function print({ out, clock }: Call, view: RequestView): void {
  const heading = (words: string, more = ''): void =>
    out.line(`\n${styleText('bold', words)}${more}`);
  const { reasons, others, offers } = view;
  out.line(
    `${view.test ? `${styleText(['bold', 'yellow'], 'TEST')}  ` : ''}${styleText('bold', printable(view.requestId))}  ${styleText(COLOURS[view.tone], view.state)}`,
  );
  out.line(table(view.facts.map(({ name, words }) => [styleText('dim', name), printable(words)])));
  if (reasons.length > 0) {
    heading(reasons.length === 1 ? 'One reason' : `${reasons.length} reasons`);
    out.line(
      table(reasons.map(({ field, code, message }) => [field, styleText('yellow', code), message])),
    );
  }
  heading('Timeline', ' (UTC)');
  out.line(table(view.timeline.map(happeningRow)));
  heading('Next', `  ${view.next}`);
  if (offers.length > 0) {
    heading('Possible');
    out.line(table(offers.map(({ what, command }) => [what, command])));
  }
  if (others.length > 0) {
    heading('Of the same applicant');
    out.line(headed(FOUND, others, clock.now()));
  }
}

function happeningRow(
  { at, what, times, until = at }: Happening,
  index: number,
  all: readonly Happening[],
): string[] {
  const before = all[index - 1];
  const sinceMs = before === undefined ? 0 : at.getTime() - (before.until ?? before.at).getTime();
  const often =
    times === undefined ? '' : `, ${times} times in ${duration(until.getTime() - at.getTime())}`;
  return [
    utc(at),
    styleText('dim', before === undefined ? '' : `+${duration(sinceMs)}`),
    what + often,
  ];
}
