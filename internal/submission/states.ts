/**
 * The states of a request, and every change to its record. These tables define each update's filter
 * (move-of.ts), retention, look-ups, metrics and docs/states.md.
 */

export const openStates = ['recorded', 'account_created'] as const;
export const finalStates = [
  'completed',
  'rejected',
  'undeliverable',
  'closed',
  'dead_lettered',
  'malformed',
  'refused',
  'withdrawn',
] as const;
export type OpenState = (typeof openStates)[number];
type FinalState = (typeof finalStates)[number];
export type State = OpenState | FinalState;
export const states: readonly State[] = [...openStates, ...finalStates];

export interface Card {
  readonly meaning: string;
  /** The HTTP status that the partner was answered. */
  readonly answered: readonly number[];
  /** What a status look-up shows the partner. */
  readonly status: 'processing' | 'completed' | 'rejected' | 'undeliverable' | 'not_accepted';
  /** `work`: while it is open; `decision`: until an operator decides; `days`: by a setting. */
  readonly kept: 'work' | 'decision' | 'days';
  /** Kept for the `days` of a setting, or as long as the `record`. */
  readonly body: 'days' | 'record' | 'none';
}

export const cards = {
  recorded: {
    meaning: 'answered 202; the application is checked next',
    answered: [202],
    status: 'processing',
    kept: 'work',
    body: 'record',
  },
  account_created: {
    meaning: 'the account exists; the e-mail goes out next',
    answered: [202],
    status: 'processing',
    kept: 'work',
    body: 'record',
  },
  completed: {
    meaning: 'the e-mail was handed to the mail server',
    answered: [202],
    status: 'completed',
    kept: 'days',
    body: 'days',
  },
  rejected: {
    meaning: 'invalid fields, a duplicate, or erased before its end, with every reason',
    answered: [202],
    status: 'rejected',
    kept: 'days',
    body: 'days',
  },
  undeliverable: {
    meaning: "the applicant's mail server said no for good, at once or by a later bounce",
    answered: [202],
    status: 'undeliverable',
    kept: 'days',
    body: 'days',
  },
  closed: {
    meaning: 'ended by an operator: nothing is mailed, its link is void',
    answered: [202],
    // Shown with the reason `discarded`.
    status: 'rejected',
    kept: 'days',
    body: 'days',
  },
  dead_lettered: {
    meaning: 'retries used up: an operator decides; never deleted',
    answered: [202],
    // Shown as `processing`: the partner must not submit again, and an operator decides.
    status: 'processing',
    kept: 'decision',
    body: 'record',
  },
  malformed: {
    meaning: 'answered 400 or 408',
    answered: [400, 408],
    status: 'not_accepted',
    kept: 'days',
    body: 'record',
  },
  refused: {
    meaning: 'answered 401 or 403',
    answered: [401, 403],
    status: 'not_accepted',
    kept: 'days',
    body: 'none',
  },
  withdrawn: {
    meaning: 'answered 500 while its write was in doubt',
    answered: [500],
    status: 'not_accepted',
    kept: 'days',
    body: 'record',
  },
} as const satisfies Record<State, Card>;

/** Undefined for a state that only a newer version of the service knows. */
export function cardOf(state: State): Card | undefined {
  return states.includes(state) ? cards[state] : undefined;
}

type StateOf<K extends Card['kept']> = {
  [S in State]: (typeof cards)[S]['kept'] extends K ? S : never;
}[State];

/** Live records in these states expire; a move into one must give the days. */
export type KeptState = StateOf<'days'>;
type AcceptedState = {
  [S in State]: (typeof cards)[S]['answered'] extends readonly [202] ? S : never;
}[State];

/** Days for every state that an accepted request can end in, and for bodies. */
export type RetentionDays = Readonly<Record<(KeptState & AcceptedState) | 'body', number>>;

/** Live records in these states never expire, so they are counted. */
export const backlogStates = states.filter(
  (state): state is StateOf<'work' | 'decision'> => cards[state].kept !== 'days',
);

/** In these an accepted request has ended for its partner. */
export const endStates = states.filter(
  (state) => cards[state].answered[0] === 202 && cards[state].status !== 'processing',
);

/** A record begins as `withdrawn` if its insert failed. */
export const firstStates: readonly State[] = ['recorded', 'malformed', 'refused', 'withdrawn'];

export const eventsOf = {
  ingest: ['withdraw'],
  processor: ['create_account', 'reject', 'complete', 'bounce', 'give_up'],
  operator: [
    'retry',
    'correct_address',
    'resend',
    'report_bounce',
    'report_refusal',
    'close',
    'reopen',
    'release',
    'erase',
  ],
} as const;
export type Actor = keyof typeof eventsOf;
export type ProcessorEvent = (typeof eventsOf)['processor'][number];
export type OperatorEvent = (typeof eventsOf)['operator'][number];
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
  /** The claim on the record; by default `none`. */
  readonly claim?: 'held' | 'expired' | 'none';
  /** `dueAt` has passed. */
  readonly due?: boolean;
}

/** `move-of.ts` has the filter of each condition. */
export const conditions = {
  account: (facts) => facts.account,
  'no account': (facts) => !facts.account,
  'not erased': (facts) => !facts.erased,
  'never claimed': (facts) => !facts.claimed,
  'not adopted': (facts) => facts.adopted !== true,
  'no claim': ({ claim = 'none' }) => claim === 'none',
  'due or new': ({ claimed, due = true }) => !claimed || due,
  'claim expired': ({ claim }) => claim === 'expired',
  'claim free': ({ claim }) => claim !== 'held',
} as const satisfies Record<string, (facts: Facts) => boolean>;
export type Condition = keyof typeof conditions;

export interface Move {
  readonly event: Event;
  readonly from: State;
  readonly to: State;
  readonly when: readonly Condition[];
  /** State, its dates and history do not change. */
  readonly stays: boolean;
}

function rows(
  event: Event,
  from: readonly State[],
  to: State | 'the same',
  when: readonly Condition[] = [],
): Move[] {
  const stays = to === 'the same';
  return from.map((state) => ({ event, from: state, to: stays ? state : to, when, stays }));
}

const mailable = ['account', 'not erased'] as const;
const unfinished = ['recorded', 'account_created', 'dead_lettered'] as const;

export const moves: readonly Move[] = [
  ...rows('withdraw', ['recorded', 'malformed'], 'withdrawn', ['never claimed', 'not adopted']),

  ...rows('create_account', ['recorded'], 'account_created'),
  ...rows('reject', ['recorded'], 'rejected'),
  ...rows('complete', ['account_created'], 'completed'),
  ...rows('bounce', ['account_created'], 'undeliverable'),
  ...rows('give_up', ['recorded', 'account_created'], 'dead_lettered'),

  ...rows('retry', ['dead_lettered'], 'recorded', ['no account', 'not erased']),
  ...rows('retry', ['dead_lettered', 'undeliverable'], 'account_created', mailable),
  // A corrected address gets an e-mail even while the old one is being mailed.
  ...rows(
    'correct_address',
    ['account_created', 'completed', 'undeliverable', 'dead_lettered'],
    'account_created',
    mailable,
  ),
  ...rows('resend', ['completed'], 'account_created', mailable),
  // Most mail servers accept first and bounce later.
  ...rows('report_bounce', ['completed'], 'undeliverable', mailable),
  // Such a bounce says nothing of the applicant's mailbox, so an operator decides.
  ...rows('report_refusal', ['completed'], 'dead_lettered', mailable),
  // A worker that holds the record may be creating its account.
  ...rows('close', unfinished, 'closed', ['not erased', 'claim free']),
  // Only `reopen` leaves `closed`, for one request at a time.
  ...rows('reopen', ['closed'], 'recorded', ['no account', 'not erased']),
  ...rows('reopen', ['closed'], 'account_created', mailable),
  // Written before its account: an order to mail that has read the record is too late.
  ...rows(
    'release',
    ['completed', 'rejected', 'undeliverable', 'closed', 'dead_lettered'],
    'the same',
    mailable,
  ),
  // An erased dead letter cannot be retried, so it is rejected: else its alert would never stop.
  ...rows('erase', unfinished, 'rejected'),
  ...rows(
    'erase',
    ['completed', 'rejected', 'undeliverable', 'closed', 'malformed', 'refused', 'withdrawn'],
    'the same',
  ),
];

/** Updates that keep the state, and when they are allowed. */
export const touches = {
  claim: { from: openStates, when: ['no claim', 'due or new'] },
  take_over: { from: openStates, when: ['claim expired'] },
  /** The claim's holder renews, postpones or releases it; only the holder knows the version. */
  keep: { from: openStates, when: [] },
  look_again: { from: openStates, when: [] },
  make_due: { from: ['recorded'], when: ['never claimed'] },
  /** An operator takes the record from a worker. */
  take_from_worker: { from: openStates, when: [] },
  hurry: { from: openStates, when: ['claim free'] },
  correct_email: { from: states, when: ['not erased'] },
  erase_body: { from: states.filter((state) => cards[state].kept === 'days'), when: [] },
} as const satisfies Record<string, { from: readonly State[]; when: readonly Condition[] }>;
export type Touch = keyof typeof touches;

export function nextState(state: State, event: Event, facts: Facts): State | undefined {
  return moves.find(
    (move) => move.from === state && move.event === event && holds(move.when, facts),
  )?.to;
}

export function holds(when: readonly Condition[], facts: Facts): boolean {
  return when.every((condition) => conditions[condition](facts));
}

export function isOpen(state: State): state is OpenState {
  return (openStates as readonly State[]).includes(state);
}
