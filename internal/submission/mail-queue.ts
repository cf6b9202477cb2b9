/** Reads the oldest records whose e-mail is still to be sent. */
import type { Collection, Db, Filter } from 'mongodb';
import { domainOf } from '../application/email-address.ts';
import type { Clock } from '../platform/clock.ts';
import { defined } from '../platform/defined.ts';
import { DUE_TIMEOUT_MS, LINE_OF_PARTNER, LINE_PAGE, LINE_PARTNERS } from './limits.ts';
import { RECORD_SCHEMA, submissionCollection, type SubmissionRecord } from './submission.ts';

export interface WaitingMail {
  readonly requestId: string;
  readonly version: number;
  readonly partnerId: string;
  readonly domain: string;
  readonly dueAt: Date;
  readonly traceparent?: string;
}

export interface LineHead {
  readonly mails: readonly WaitingMail[];
  readonly more: boolean;
}

const projection = {
  version: 1,
  partnerId: 1,
  'applicant.email': 1,
  dueAt: 1,
  traceparent: 1,
};

export class MailQueue {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #clock: Clock;
  #lookedUpTo = '';

  constructor(options: { readonly db: Db; readonly clock: Clock }) {
    this.#collection = submissionCollection(options.db);
    this.#clock = options.clock;
  }

  /**
   * Reads the records due longest and, if they fill a page, the oldest of other partners, so that
   * one partner cannot hide the others.
   */
  async head({
    withoutPartners,
  }: {
    readonly withoutPartners: readonly string[];
  }): Promise<LineHead> {
    const due = {
      state: 'account_created',
      dueAt: { $lte: this.#clock.now() },
      schema: { $lte: RECORD_SCHEMA },
    } as const satisfies Filter<SubmissionRecord>;
    const held = withoutPartners.length === 0 ? {} : { partnerId: { $nin: [...withoutPartners] } };
    const oldest = await this.#read({ ...due, ...held }, { dueAt: 1 }, LINE_PAGE);
    if (oldest.length < LINE_PAGE) return { mails: oldest.map(waitingMail), more: false };
    const mails = [...oldest];
    for (let partners = 0; partners < LINE_PARTNERS; partners += 1) {
      // The first entry after a partner is the next partner's oldest record.
      const behind = {
        $gt: this.#lookedUpTo,
        ...(withoutPartners.length === 0 ? {} : { $nin: [...withoutPartners] }),
      };
      const [first] = await this.#read(
        { ...due, partnerId: behind },
        { partnerId: 1, dueAt: 1 },
        1,
      );
      if (first?.partnerId === undefined) {
        this.#lookedUpTo = '';
        break;
      }
      const { partnerId } = first;
      this.#lookedUpTo = partnerId;
      mails.push(...(await this.#read({ ...due, partnerId }, { dueAt: 1 }, LINE_OF_PARTNER)));
    }
    const byId = new Map(mails.map((record) => [record._id, record]));
    return { mails: [...byId.values()].map(waitingMail), more: true };
  }

  async #read(
    filter: Filter<SubmissionRecord>,
    order: Readonly<Record<string, 1>>,
    limit: number,
  ): Promise<SubmissionRecord[]> {
    return this.#collection
      .find(filter, { projection, maxTimeMS: DUE_TIMEOUT_MS, sort: order })
      .limit(limit)
      .batchSize(limit)
      .toArray();
  }
}

export function waitingMail(record: SubmissionRecord): WaitingMail {
  const {
    _id: requestId,
    version,
    partnerId = '',
    applicant,
    dueAt = record.stateAt,
    traceparent,
  } = record;
  return {
    requestId,
    version,
    partnerId,
    domain: domainOf(applicant?.email ?? ''),
    dueAt,
    ...defined({ traceparent }),
  };
}
