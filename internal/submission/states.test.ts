/** Checks every state × event × fact of the table against this hand-written copy. */
import { expect, test } from '@jest/globals';
import { combinations } from '../../test/support/combinations.ts';
import { events, nextState, states, type Event, type Facts, type State } from './states.ts';

const reopened = ({ account, erased }: Facts): State | undefined =>
  account && !erased ? 'account_created' : undefined;

const closed = ({ erased, claim }: Facts): State | undefined =>
  erased || claim === 'held' ? undefined : 'closed';

const stays =
  (state: State) =>
  ({ account, erased }: Facts): State | undefined =>
    account && !erased ? state : undefined;

const expected: Readonly<Record<string, (facts: Facts) => State | undefined>> = {
  'recorded withdraw': ({ claimed, adopted }) => (claimed || adopted ? undefined : 'withdrawn'),
  'malformed withdraw': ({ claimed, adopted }) => (claimed || adopted ? undefined : 'withdrawn'),
  'recorded create_account': () => 'account_created',
  'recorded reject': () => 'rejected',
  'recorded give_up': () => 'dead_lettered',
  'account_created complete': () => 'completed',
  'account_created bounce': () => 'undeliverable',
  'account_created give_up': () => 'dead_lettered',
  'account_created correct_address': reopened,
  'completed correct_address': reopened,
  'completed release': stays('completed'),
  'rejected release': stays('rejected'),
  'undeliverable release': stays('undeliverable'),
  'closed release': stays('closed'),
  'dead_lettered release': stays('dead_lettered'),
  'completed resend': reopened,
  'completed report_bounce': ({ account, erased }) =>
    account && !erased ? 'undeliverable' : undefined,
  'completed report_refusal': ({ account, erased }) =>
    account && !erased ? 'dead_lettered' : undefined,
  'undeliverable retry': reopened,
  'undeliverable correct_address': reopened,
  'dead_lettered retry': ({ account, erased }) =>
    erased ? undefined : account ? 'account_created' : 'recorded',
  'dead_lettered correct_address': reopened,
  'recorded close': closed,
  'account_created close': closed,
  'dead_lettered close': closed,
  'closed reopen': ({ account, erased }) =>
    erased ? undefined : account ? 'account_created' : 'recorded',
  'closed erase': () => 'closed',
  'recorded erase': () => 'rejected',
  'account_created erase': () => 'rejected',
  'dead_lettered erase': () => 'rejected',
  'completed erase': () => 'completed',
  'rejected erase': () => 'rejected',
  'undeliverable erase': () => 'undeliverable',
  'malformed erase': () => 'malformed',
  'refused erase': () => 'refused',
  'withdrawn erase': () => 'withdrawn',
};

const both = [true, false];
const everyFact: readonly Facts[] = combinations({
  account: both,
  claimed: both,
  adopted: both,
  erased: both,
  claim: ['held', 'expired', 'none'] as const,
});
const cells = states.flatMap((state) => events.map((event): [State, Event] => [state, event]));

test('ten states and fifteen events make 150 cells, which hold each expected move', () => {
  expect(cells).toHaveLength(150);
  const keys = cells.map(([state, event]) => `${state} ${event}`);
  expect(Object.keys(expected).filter((key) => !keys.includes(key))).toEqual([]);
});

test.each(cells)('%s %s', (state, event) => {
  for (const facts of everyFact) {
    const wanted = expected[`${state} ${event}`]?.(facts);
    expect({ facts, to: nextState(state, event, facts) }).toEqual({ facts, to: wanted });
  }
});
