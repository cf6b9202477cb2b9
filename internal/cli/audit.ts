/** `audit`: lists requests and accounts that are late or contradict each other. */
import { styleText } from 'node:util';
import { printable, table } from '../platform/process/terminal.ts';
import { states, type State } from '../submission/states.ts';
import { auditView, type AuditView } from '../self-audit/walk.ts';
import { EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { forPrograms } from './lists.ts';

export const audit: Command = {
  name: 'audit',
  positionals: [],
  options: ['since'],
  run: runAudit,
};

async function runAudit(call: Call): Promise<ExitCode> {
  const { desk, out, values, clock } = call;
  const view = await auditView(desk, clock, values.since);
  if (values.json) out.json(forPrograms(view));
  else print(call, view);
  return view.problems === 0 ? EXIT.ok : EXIT.found;
}

function print({ out, clock }: Call, view: AuditView): void {
  const { requestsByState: byState, problems } = view;
  const known = states.filter((state) => byState[state] !== undefined);
  const others = Object.keys(byState).filter((state) => !states.includes(state as State));
  const total = Object.values(byState).reduce((sum, count) => sum + count, 0);
  out.line(`${styleText('bold', 'Requests')} at ${clock.now().toISOString().slice(0, 19)}Z`);
  const rows = [...known, ...others].map((state) => [printable(state), String(byState[state])]);
  out.line(
    table([...rows, ['all', String(total)], ['of these accepted (202)', String(view.accepted)]]),
  );
  const some = (count: number, words: string): string => (count === 0 ? '' : `, ${count} ${words}`);
  out.line(
    `${styleText('bold', 'Accounts')}  ${view.accounts}${some(view.accountsReleased, 'of them released')}${some(view.accountsWhoseRequestIsPastRetention, 'whose request is past its retention')}`,
  );
  if (view.putAside > 0) out.line(`${view.putAside} findings are put aside by operators`);
  for (const { kind, weight, meaning, count, ids } of view.findings) {
    const colour = weight === 'problem' ? 'red' : 'yellow';
    out.line(`\n${styleText(colour, weight)}  ${count} ${kind}: each ${meaning}`);
    for (const id of ids) out.line(`  ${printable(id)}`);
    if (count > ids.length) out.line(`  … and ${count - ids.length} more`);
  }
  out.line(
    problems === 0
      ? `\n${styleText('green', 'All is where it should be:')} every accepted request is in exactly one state, and accounts and requests agree.`
      : `\n${styleText('red', `${problems} problem(s).`)} "partner-ingest show ID" tells more of each; docs/operations.md says what to do.`,
  );
}
