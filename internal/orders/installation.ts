/** The order by which an operator gives the database to another source of partner keys. */
import { isKeysOf, type InstallationDocument } from '../installation/installation.ts';
import { moveInstallationWords } from '../view/order-words.ts';
import { OrderRefused, type OneOrder } from './order.ts';

export interface InstallationTarget {
  /** Undefined where no process of this version has seen the database. */
  readonly found: InstallationDocument | undefined;
  readonly to: string;
}

export const moveInstallation: OneOrder<InstallationTarget> = {
  name: 'installation move',
  select: async ({ source = '' }, { stores }) => {
    if (!isKeysOf(source)) throw new OrderRefused(`no source of partner keys: ${source}`);
    return { found: await stores.installation.read(), to: source };
  },
  seen: ({ found, to }) => [found?.id, found?.keysOf, to],
  plan: ({ to }) => ({ to }),
  act: async ({ found, to }, _given, { stores }) =>
    isKeysOf(to) && stores.installation.move(found, to),
  words: moveInstallationWords,
};
