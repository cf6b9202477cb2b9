/** The orders about a partner or one of its keys. */
import type { PartnerFlag } from '../../partner/flags.ts';
import { defined } from '../../platform/process/defined.ts';
import { flagWords, partnerWords, REVOKED, revokeWords } from '../view/order-words.ts';
import { reactivation, secretsSwitchingOff } from '../view/partners.ts';
import { openOrder, OrderRefused, type Given, type OpenOrder, type OrderContext } from './order.ts';

export const holdPartner = (given: Given, context: OrderContext): Promise<OpenOrder> =>
  setFlag('hold', given, context.stores.holds, context);

export const releasePartner = (given: Given, context: OrderContext): Promise<OpenOrder> =>
  setFlag('release', given, context.stores.holds, context);

export const disablePartner = (given: Given, context: OrderContext): Promise<OpenOrder> =>
  setFlag('disable', given, context.stores.keys.disabled, context);

export const enablePartner = (given: Given, context: OrderContext): Promise<OpenOrder> =>
  setFlag('enable', given, context.stores.keys.disabled, context);

async function setFlag(
  name: keyof typeof flagWords,
  { partner: partnerId = '' }: Given,
  flag: PartnerFlag,
  context: OrderContext,
): Promise<OpenOrder> {
  const { stores, clock } = context;
  const isSet = name === 'hold' || name === 'disable';
  const keys = await stores.keys.list(partnerId);
  const off = name === 'enable' ? secretsSwitchingOff(keys, clock.now()) : [];
  const inactiveBy = ['disable', 'enable'].includes(name) ? off : undefined;
  const flagged = await flag.find(partnerId);
  const { already, result } = flagWords[name];
  const plan =
    (flagged?.isSet ?? false) === isSet
      ? { whyNot: [already, ...off.map(reactivation)].join('; ') }
      : { to: result };
  // A flag on a mistyped name would do nothing.
  const isKnown = !isSet || keys.length > 0;
  const words = partnerWords(name, { partnerId, isKnown, ...defined({ inactiveBy }) });
  const act = () => flag.change(partnerId, isSet, stores.trail.by, flagged);
  const seen = [partnerId, flagged?.version];
  return openOrder(`partner ${name}`, { seen, plan, words, act }, context);
}

export async function revokeKey(
  { key: id = '' }: Given,
  context: OrderContext,
): Promise<OpenOrder> {
  const { keys } = context.stores;
  const [key, other] = (await keys.list()).filter(({ hash }) => hash.startsWith(id));
  if (key === undefined) throw new OrderRefused(`no key begins with ${id}: see "keys list"`);
  if (other !== undefined)
    throw new OrderRefused(`several keys begin with ${id}: give more of the SHA-256`);
  const { hash, partnerId, revokedAt } = key;
  const plan = revokedAt === undefined ? { to: 'revoked' } : REVOKED;
  const words = revokeWords(key);
  const act = () => keys.revoke(hash);
  return openOrder(
    'keys revoke',
    { seen: [hash, partnerId, revokedAt], plan, words, act },
    context,
  );
}
