/**
 * Decides from a seed what partners send: mostly new applicants, some repeats and races, some
 * faults of every kind.
 */
import type { ApplicantKeys, RequestKind } from './ledger.ts';
import type { Random } from '../support/random.ts';

export interface PlannedRequest {
  readonly kind: RequestKind;
  readonly applicant?: ApplicantKeys;
  readonly body: Buffer;
  readonly key: 'good' | 'inactive' | 'unknown' | 'none';
  readonly idempotencyKey?: string;
}

/** How often each comes, in parts of their sum. */
const WEIGHTS = {
  fresh: 62,
  repeat: 6,
  repeatDressedUp: 4,
  race: 4,
  sameEmail: 3,
  sameEin: 3,
  malformed: 8,
  tooLarge: 1,
  invalid: 6,
  badKey: 3,
  cut: 1,
  secondBody: 3,
} as const;

/** Repeats are of one of this many latest applicants. */
const REMEMBERED = 40;
/** The same application this many times at once, and up to three more. */
const RACE_LEAST = 3;
const RACE_SPREAD = 4;
const FIRST_EIN = 100_000_000;
const TOO_LARGE_BYTES = 65_500;
/** A partner that got a 500 or nothing sends the same again this often. */
const RETRY_SHARE = 0.5;
const KEYED_SHARE = 0.5;
/** While there are repeats, this share of what goes out is one. */
const AGAIN_SHARE = 0.5;

const NAMES = [
  'Ada Ltd',
  'Åse & Sønner AS',
  '株式会社 例',
  'O"Hara <b>Partners</b>',
  'Nulls \u0000 Inc',
  'x'.repeat(900),
] as const;
const MALFORMED = ['', '[]', 'null', '"text"', '17', '{"email":', '{}{}', '{"a":1}]', '\0', 'ÿþ{'];

interface Recent {
  readonly keys: ApplicantKeys;
  readonly request: PlannedRequest;
  /** The idempotency key it came with. */
  readonly used: string | undefined;
}

export class Planner {
  readonly #random: Random;
  readonly #recent: Recent[] = [];
  readonly #again: PlannedRequest[] = [];
  readonly #keyed: boolean;
  #applicants: number;

  /**
   * Planners that share a database need ranges of applicants of their own, by how many come
   * `before` theirs. `keyed`: half of the new applicants come with an idempotency key, and some
   * keys come with a second body, too.
   */
  constructor(random: Random, before = 0, { keyed = false } = {}) {
    this.#random = random;
    this.#keyed = keyed;
    this.#applicants = before;
  }

  /** What goes out next, all of it at once. */
  next(): readonly PlannedRequest[] {
    const random = this.#random;
    // In a long outage nothing else would be sent.
    const again = random.next() < AGAIN_SHARE ? this.#again.shift() : undefined;
    if (again !== undefined) return [again];
    const earlier = this.#recent[random.below(this.#recent.length)];
    const choice = random.weighted(WEIGHTS);
    if (earlier !== undefined) {
      const { keys, request, used } = earlier;
      if (choice === 'repeat') return [request];
      if (choice === 'repeatDressedUp') return [dressedUp(keys)];
      if (choice === 'sameEmail') return [application({ ...this.#newKeys(), email: keys.email })];
      if (choice === 'sameEin') return [application({ ...this.#newKeys(), ein: keys.ein })];
      if (choice === 'secondBody' && this.#keyed) return this.#secondBody(used);
    }
    switch (choice as string) {
      case 'race':
        return Array<PlannedRequest>(RACE_LEAST + random.below(RACE_SPREAD)).fill(this.#fresh());
      case 'malformed':
        // latin1, so that some of it is no UTF-8.
        return [malformed(Buffer.from(random.pick(MALFORMED), 'latin1'))];
      case 'tooLarge':
        return [malformed(Buffer.from(JSON.stringify({ pad: 'x'.repeat(TOO_LARGE_BYTES) })))];
      case 'invalid':
        return [invalid(random, this.#newKeys())];
      case 'badKey': {
        const key = random.pick(['inactive', 'unknown', 'none'] as const);
        return [{ ...this.#unremembered(), kind: 'unauthorized', key }];
      }
      case 'cut':
        return [{ ...this.#unremembered(), kind: 'cut' }];
      default:
        return [this.#fresh()];
    }
  }

  /** Tells of a request without success; a partner may send it again. */
  failed(request: PlannedRequest): void {
    if (request.kind !== 'valid') return;
    if (request.idempotencyKey !== undefined || this.#random.next() < RETRY_SHARE)
      this.#again.push(request);
  }

  #newKeys(): ApplicantKeys {
    this.#applicants += 1;
    return {
      email: `applicant-${this.#applicants}@example.com`,
      ein: String(FIRST_EIN + this.#applicants),
    };
  }

  #fresh(): PlannedRequest {
    const keys = this.#newKeys();
    const request = application(keys, this.#random.pick(NAMES));
    const used = this.#keyed && this.#random.next() < KEYED_SHARE ? keyOf(keys) : undefined;
    this.#recent.push({ keys, request, used });
    if (this.#recent.length > REMEMBERED) this.#recent.shift();
    // A repeat of it comes without the key, as one of a partner that forgot it.
    return used === undefined ? request : { ...request, idempotencyKey: used };
  }

  /** Another application under a used key; without one, two at once under a new key. */
  #secondBody(used: string | undefined): PlannedRequest[] {
    if (used !== undefined) return [{ ...application(this.#newKeys()), idempotencyKey: used }];
    const keys = this.#newKeys();
    return [keys, this.#newKeys()].map((each) => ({
      ...application(each),
      idempotencyKey: keyOf(keys),
    }));
  }

  /** Only for requests that must have no effect, so the applicant is nobody's. */
  #unremembered(): Pick<PlannedRequest, 'body' | 'key'> {
    const { body, key } = application(this.#newKeys());
    return { body, key };
  }
}

function keyOf({ ein }: ApplicantKeys): string {
  return `chaos-${ein}`;
}

function application(keys: ApplicantKeys, name = 'Business'): PlannedRequest {
  const fields = { email: keys.email, business_name: name, ein: keys.ein };
  return { kind: 'valid', applicant: keys, key: 'good', body: Buffer.from(JSON.stringify(fields)) };
}

/** The same applicant in other bytes: capitals, white space, more fields, a byte order mark. */
function dressedUp(keys: ApplicantKeys): PlannedRequest {
  const fields = {
    note: 'again',
    ein: keys.ein,
    business_name: 'Other Name',
    email: ` ${keys.email.toUpperCase()} `,
  };
  return {
    kind: 'valid',
    applicant: keys,
    key: 'good',
    body: Buffer.from(`\uFEFF${JSON.stringify(fields, null, 2)}\n`),
  };
}

const malformed = (body: Buffer): PlannedRequest => ({ kind: 'malformed', key: 'good', body });

function invalid(random: Random, keys: ApplicantKeys): PlannedRequest {
  const valid = { email: keys.email, business_name: 'Business', ein: keys.ein };
  const fields = random.pick<object>([
    {},
    { ...valid, email: 'nobody' },
    { ...valid, email: 7 },
    { ...valid, business_name: ' \t' },
    { ...valid, ein: '12-3456789' },
    { ...valid, ein: Number(keys.ein) },
    { ...valid, ein: `${keys.ein}\n` },
  ]);
  return { kind: 'invalid', key: 'good', body: Buffer.from(JSON.stringify(fields)) };
}
