/** The orders about a partner or one of its keys. */
import type { Flagged, PartnerFlag } from '../../partner/flags.ts';
import type { PartnerKey } from '../../partner/key-store.ts';
import { defined } from '../../platform/process/defined.ts';
import {
  flagWords,
  partnerWords,
  REVOKED,
  revokeWords,
  type PartnerTarget,
} from '../view/order-words.ts';
import { reactivation, secretsSwitchingOff } from '../view/partners.ts';
import { OrderRefused, type OneOrder, type OrderStores } from './order.ts';

interface FlagTarget extends PartnerTarget {
  readonly flagged: Flagged | null;
}

const flagOrder = (
  name: keyof typeof flagWords,
  isSet: boolean,
  flag: (stores: OrderStores) => PartnerFlag,
): OneOrder<FlagTarget> => ({
  name: `partner ${name}`,
  select: async ({ partner: partnerId = '' }, { stores, clock }) => {
    const keys = await stores.keys.list(partnerId);
    const off = name === 'enable' ? secretsSwitchingOff(keys, clock.now()) : [];
    const inactiveBy = ['disable', 'enable'].includes(name) ? off : undefined;
    return {
      partnerId,
      flagged: await flag(stores).find(partnerId),
      // A flag on a mistyped name would do nothing.
      isKnown: !isSet || keys.length > 0,
      ...defined({ inactiveBy }),
    };
  },
  seen: ({ partnerId, flagged }) => [partnerId, flagged?.version],
  plan: ({ flagged, inactiveBy = [] }) => {
    const { already, result } = flagWords[name];
    return (flagged?.isSet ?? false) === isSet
      ? { whyNot: [already, ...inactiveBy.map(reactivation)].join('; ') }
      : { to: result };
  },
  act: ({ partnerId, flagged }, _given, { stores }) =>
    flag(stores)[isSet ? 'set' : 'clear'](partnerId, stores.trail.by, flagged),
  words: (target) => partnerWords(name, target),
});

const holds = (stores: OrderStores): PartnerFlag => stores.holds;
const disabled = ({ keys }: OrderStores): PartnerFlag => keys.disabled;

export const partnerFlags: readonly OneOrder<FlagTarget>[] = [
  flagOrder('hold', true, holds),
  flagOrder('release', false, holds),
  flagOrder('disable', true, disabled),
  flagOrder('enable', false, disabled),
];

export const revokeKey: OneOrder<PartnerKey> = {
  name: 'keys revoke',
  final: true,
  select: async ({ key: id = '' }, { stores }) => {
    const all = await stores.keys.list();
    const [key, other] = all.filter(({ hash }) => hash.startsWith(id));
    if (key === undefined) throw new OrderRefused(`no key begins with ${id}: see "keys list"`);
    if (other !== undefined)
      throw new OrderRefused(`several keys begin with ${id}: give more of the SHA-256`);
    return key;
  },
  seen: ({ hash, partnerId, revokedAt }) => [hash, partnerId, revokedAt],
  plan: ({ revokedAt }) => (revokedAt === undefined ? { to: 'revoked' } : REVOKED),
  act: ({ hash }, _given, { stores }) => stores.keys.revoke(hash),
  words: revokeWords,
};
