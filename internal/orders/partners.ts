/** The orders about a partner or one of its keys. */
import { keyIdOf } from '../partner/api-key.ts';
import type { Flagged, PartnerFlag } from '../partner/flags.ts';
import { secretName } from '../partner/key-secret.ts';
import type { PartnerKey } from '../partner/key-store.ts';
import { reactivation, secretsSwitchingOff } from '../view/partners.ts';
import { OrderRefused, type OneOrder, type OrderDesk } from './order.ts';

/** Sets or clears a flag of a partner. */
interface FlagOrder {
  readonly flag: (desk: OrderDesk) => PartnerFlag;
  readonly isSet: boolean;
  /** In JSON. */
  readonly result: string;
  /** Continues a sentence that begins with the partner. */
  readonly done: string;
  readonly already: string;
}

interface PartnerTarget {
  readonly partnerId: string;
  readonly flagged: Flagged | null;
  readonly isKnown: boolean;
  /** Secrets that make keys inactive as well. */
  readonly inactiveBy: readonly string[];
}

const flagOrder = (
  name: string,
  { flag, isSet, result, done, already }: FlagOrder,
): OneOrder<PartnerTarget> => ({
  name: `partner ${name}`,
  select: async ({ partner: partnerId = '' }, { desk, clock }) => {
    const keys = await desk.keys.list(partnerId);
    return {
      partnerId,
      flagged: await flag(desk).find(partnerId),
      isKnown: keys.length > 0,
      inactiveBy: name === 'enable' ? secretsSwitchingOff(keys, clock.now()) : [],
    };
  },
  seen: ({ partnerId, flagged }) => [partnerId, flagged?.version],
  plan: ({ flagged, inactiveBy }) =>
    (flagged?.isSet ?? false) === isSet
      ? { whyNot: [already, ...inactiveBy.map(reactivation)].join('; ') }
      : { to: result },
  act: ({ partnerId, flagged }, _given, { desk }) =>
    flag(desk)[isSet ? 'set' : 'clear'](partnerId, desk.trail.by, flagged),
  words: ({ partnerId, isKnown, inactiveBy }) => ({
    subject: partnerId,
    about: { partnerId },
    notes: [
      // A mistyped name would be flagged in vain.
      ...(isSet && !isKnown ? [`no key of ${partnerId} is known: is that its name?`] : []),
      ...inactiveBy.map(reactivation),
    ],
    done: `${partnerId} ${done}`,
    unchanged: { whyNot: already },
    json: {
      done: {
        partner: partnerId,
        result,
        ...(['disable', 'enable'].includes(name) ? { inactive_by: inactiveBy } : {}),
      },
    },
  }),
});

const holds = ({ holds: flag }: OrderDesk): PartnerFlag => flag;
const disabled = ({ keys }: OrderDesk): PartnerFlag => keys.disabled;

export const partnerFlags: readonly OneOrder<PartnerTarget>[] = [
  flagOrder('hold', {
    flag: holds,
    isSet: true,
    result: 'held',
    done: ' on hold: a processor that works on a request of it stops within five seconds; new requests are accepted and wait',
    already: 'is on hold already',
  }),
  flagOrder('release', {
    flag: holds,
    isSet: false,
    result: 'released',
    done: ' released: processors go on with its work within half a minute',
    already: 'is not on hold',
  }),
  flagOrder('disable', {
    flag: disabled,
    isSet: true,
    result: 'disabled',
    done: 'is disabled: each ingest that reaches MongoDB answers its keys 403 within a second; what it sent before is still worked on',
    already: 'is disabled already',
  }),
  flagOrder('enable', {
    flag: disabled,
    isSet: false,
    result: 'enabled',
    done: 'is enabled: each ingest that reaches MongoDB knows it within a second',
    already: 'is not disabled',
  }),
];

const REVOKED = { whyNot: 'is revoked already' } as const;

export const revokeKey: OneOrder<PartnerKey> = {
  name: 'keys revoke',
  final: true,
  select: async ({ key: id = '' }, { desk }) => {
    const all = await desk.keys.list();
    const [key, other] = all.filter(({ hash }) => hash.startsWith(id));
    if (key === undefined) throw new OrderRefused(`no key begins with ${id}: see "keys list"`);
    if (other !== undefined)
      throw new OrderRefused(`several keys begin with ${id}: give more of the SHA-256`);
    return key;
  },
  seen: ({ hash, partnerId, revokedAt }) => [hash, partnerId, revokedAt],
  plan: ({ revokedAt }) => (revokedAt === undefined ? { to: 'revoked' } : REVOKED),
  act: ({ hash }, _given, { desk }) => desk.keys.revoke(hash),
  words: ({ hash, partnerId, source }) => {
    const shown = { key: keyIdOf(hash), partner: partnerId, secret: secretName(source) };
    const subject = `key ${shown.key} of ${partnerId}, from ${shown.secret},`;
    return {
      subject,
      about: { partnerId, keyId: shown.key },
      would: `${subject} would be revoked`,
      done: `${subject} is revoked: each ingest that reaches MongoDB answers it 401 within a second; remove it from its Secret`,
      unchanged: REVOKED,
      json: { dry: shown, done: { ...shown, result: 'revoked' } },
    };
  },
};
