/**
 * Operators' flags on a whole partner: on hold, so that its work waits, or disabled, so that its
 * keys are answered 403.
 */
import type { Collection, Db } from 'mongodb';
import type { Clock } from '../platform/process/clock.ts';
import { unlessDuplicate } from '../platform/stores/mongo.ts';
import { newerThan, refuseNewer } from '../platform/process/fault.ts';
import { bounded } from '../platform/stores/mongo-read.ts';

export const PARTNER_HOLDS = 'partner_holds';
export const PARTNERS_DISABLED = 'partners_disabled';

const FLAGGED_MAX = 100_000;
const FLAGS_SCHEMA = 1;

/** The document stays when its flag is cleared, so an older command's late write does nothing. */
export interface Flagged {
  readonly _id: string;
  /** Raised when older versions would misread the document. */
  readonly schema?: number;
  readonly isSet: boolean;
  readonly version: number;
  readonly at: Date;
  readonly by: string;
}

interface FlagOptions {
  readonly db: Db;
  readonly clock: Clock;
}

export class PartnerFlag {
  readonly #partners: Collection<Flagged>;
  readonly #clock: Clock;

  constructor(partners: Collection<Flagged>, clock: Clock) {
    this.#partners = partners;
    this.#clock = clock;
  }

  /** Rejects with `NewerVersionError` if a document has a newer schema. */
  async list(): Promise<Flagged[]> {
    const found = await this.#partners
      .find({ $or: [{ isSet: true }, newerThan(FLAGS_SCHEMA)] }, bounded)
      .sort({ _id: 1 })
      .limit(FLAGGED_MAX)
      .toArray();
    for (const flagged of found) refuse(flagged);
    return found;
  }

  async isSet(partnerId: string): Promise<boolean> {
    return (await this.find(partnerId))?.isSet ?? false;
  }

  async find(partnerId: string): Promise<Flagged | null> {
    const found = await this.#partners.findOne({ _id: partnerId }, bounded);
    if (found !== null) refuse(found);
    return found;
  }

  /** False if nothing changes, or the flag has changed since it was `seen`. */
  async change(
    partnerId: string,
    isSet: boolean,
    by: string,
    seen?: Flagged | null,
  ): Promise<boolean> {
    const before = seen === undefined ? await this.find(partnerId) : seen;
    if ((before?.isSet ?? false) === isSet) return false;
    const version = (before?.version ?? 0) + 1;
    const change = { schema: FLAGS_SCHEMA, isSet, version, at: this.#clock.now(), by };
    if (before !== null) {
      const filter = { _id: partnerId, version: before.version };
      return (await this.#partners.updateOne(filter, { $set: change })).matchedCount === 1;
    }
    return unlessDuplicate(this.#partners.insertOne({ _id: partnerId, ...change }));
  }
}

const refuse = (flagged: Flagged): void =>
  refuseNewer("operators' flags of partners", flagged, FLAGS_SCHEMA);

export class PartnerHolds extends PartnerFlag {
  constructor({ db, clock }: FlagOptions) {
    super(db.collection<Flagged>(PARTNER_HOLDS), clock);
  }
}

export class PartnersDisabled extends PartnerFlag {
  constructor({ db, clock }: FlagOptions) {
    super(db.collection<Flagged>(PARTNERS_DISABLED), clock);
  }
}
