/** The states of a request and all moves between them, from which docs/states.md is generated. */

/** Work remains; only these records have `dueAt`. */
export const openStates = ['recorded', 'account_created'] as const;
export const finalStates = [
  'completed',
  'rejected',
  'undeliverable',
  'dead_lettered',
  'malformed',
  'refused',
  'withdrawn',
] as const;
export type OpenState = (typeof openStates)[number];
export type FinalState = (typeof finalStates)[number];
export type State = OpenState | FinalState;
export const states: readonly State[] = [...openStates, ...finalStates];

export const meanings: Readonly<Record<State, string>> = {
  recorded: 'answered 202; the application is checked next',
  account_created: 'the account exists; the e-mail goes out next',
  completed: 'the e-mail was handed to the mail server',
  rejected: 'invalid fields, a duplicate, or closed by an operator, with every reason',
  undeliverable: "the applicant's mail server said no for good, at once or by a later bounce",
  dead_lettered: 'retries used up: an operator decides; never deleted',
  malformed: 'answered 400',
  refused: 'answered 401 or 403',
  withdrawn: 'answered 500 while its write was in doubt',
};

/** A record begins as `withdrawn` if its insert never landed. */
export const firstStates: readonly State[] = ['recorded', 'malformed', 'refused', 'withdrawn'];

export const eventsOf = {
  ingest: ['withdraw'],
  processor: ['create_account', 'reject', 'complete', 'bounce', 'give_up'],
  operator: ['retry', 'correct_address', 'resend', 'report_bounce', 'close', 'erase'],
} as const;
export type Actor = keyof typeof eventsOf;
export type ProcessorEvent = (typeof eventsOf)['processor'][number];
export type OperatorEvent = (typeof eventsOf)['operator'][number];
export type ReopeningEvent = Exclude<OperatorEvent, 'report_bounce' | 'close' | 'erase'>;
export type Event = (typeof eventsOf)[Actor][number];
export const events: readonly Event[] = [
  ...eventsOf.ingest,
  ...eventsOf.processor,
  ...eventsOf.operator,
];

export interface Facts {
  /** This request created an account that still exists. */
  readonly account: boolean;
  /** True if `version` is above 0. */
  readonly claimed: boolean;
  readonly adopted?: boolean;
  readonly erased: boolean;
}

export interface Move {
  readonly event: Event;
  readonly from: State;
  readonly to: State;
  readonly when?: 'never claimed or adopted' | 'account, not erased' | 'no account, not erased';
}

export const moves: readonly Move[] = [
  { event: 'withdraw', from: 'recorded', to: 'withdrawn', when: 'never claimed or adopted' },
  { event: 'withdraw', from: 'malformed', to: 'withdrawn', when: 'never claimed or adopted' },

  { event: 'create_account', from: 'recorded', to: 'account_created' },
  { event: 'reject', from: 'recorded', to: 'rejected' },
  { event: 'complete', from: 'account_created', to: 'completed' },
  { event: 'bounce', from: 'account_created', to: 'undeliverable' },
  { event: 'give_up', from: 'recorded', to: 'dead_lettered' },
  { event: 'give_up', from: 'account_created', to: 'dead_lettered' },

  { event: 'retry', from: 'dead_lettered', to: 'recorded', when: 'no account, not erased' },
  { event: 'retry', from: 'dead_lettered', to: 'account_created', when: 'account, not erased' },
  { event: 'retry', from: 'undeliverable', to: 'account_created', when: 'account, not erased' },

  // A corrected address gets an e-mail even while the first is being sent.
  {
    event: 'correct_address',
    from: 'account_created',
    to: 'account_created',
    when: 'account, not erased',
  },
  {
    event: 'correct_address',
    from: 'completed',
    to: 'account_created',
    when: 'account, not erased',
  },
  {
    event: 'correct_address',
    from: 'undeliverable',
    to: 'account_created',
    when: 'account, not erased',
  },
  {
    event: 'correct_address',
    from: 'dead_lettered',
    to: 'account_created',
    when: 'account, not erased',
  },

  { event: 'resend', from: 'completed', to: 'account_created', when: 'account, not erased' },

  // Most mail servers accept first and bounce later.
  { event: 'report_bounce', from: 'completed', to: 'undeliverable', when: 'account, not erased' },

  ...(['recorded', 'account_created', 'dead_lettered'] as const).flatMap((from): Move[] => [
    { event: 'close', from, to: 'rejected', when: 'no account, not erased' },
    { event: 'close', from, to: 'undeliverable', when: 'account, not erased' },
  ]),

  // An erased dead letter cannot be retried, so its alert would never stop.
  { event: 'erase', from: 'recorded', to: 'rejected' },
  { event: 'erase', from: 'account_created', to: 'rejected' },
  { event: 'erase', from: 'dead_lettered', to: 'rejected' },
  { event: 'erase', from: 'completed', to: 'completed' },
  { event: 'erase', from: 'rejected', to: 'rejected' },
  { event: 'erase', from: 'undeliverable', to: 'undeliverable' },
  { event: 'erase', from: 'malformed', to: 'malformed' },
  { event: 'erase', from: 'refused', to: 'refused' },
  { event: 'erase', from: 'withdrawn', to: 'withdrawn' },
];

export function nextState(state: State, event: Event, facts: Facts): State | undefined {
  return moves.find(
    (move) => move.from === state && move.event === event && holds(move.when, facts),
  )?.to;
}

function holds(when: Move['when'], facts: Facts): boolean {
  switch (when) {
    case undefined:
      return true;
    case 'never claimed or adopted':
      return !facts.claimed && facts.adopted !== true;
    case 'account, not erased':
      return facts.account && !facts.erased;
    case 'no account, not erased':
      return !facts.account && !facts.erased;
  }
}

export function statesBefore(event: Event): readonly State[] {
  return [...new Set(moves.filter((move) => move.event === event).map((move) => move.from))];
}

export function isOpen(state: State): state is OpenState {
  return (openStates as readonly State[]).includes(state);
}

/** In days; open records and dead letters are never deleted. */
export type RetentionDays = Readonly<
  Partial<Record<Exclude<FinalState, 'dead_lettered'> | 'body', number>>
>;
