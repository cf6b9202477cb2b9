/** The order by which an operator gives the database to another source of partner keys. */
import { isKeysOf } from '../../installation/installation.ts';
import { moveInstallationWords } from '../view/order-words.ts';
import { openOrder, OrderRefused, type Given, type OpenOrder, type OrderContext } from './order.ts';

export async function moveInstallation(
  { source: to = '' }: Given,
  context: OrderContext,
): Promise<OpenOrder> {
  if (!isKeysOf(to)) throw new OrderRefused(`no source of partner keys: ${to}`);
  const { installation } = context.stores;
  // Undefined where no process of this version has seen the database.
  const found = await installation.read();
  const words = moveInstallationWords({ found, to });
  const seen = [found?.id, found?.keysOf, to];
  const act = () => installation.move(found, to);
  return openOrder('installation move', { seen, plan: { to }, words, act }, context);
}
