/** The id that a world's names in Redis carry. */
import type { Db } from 'mongodb';
import {
  INSTALLATION,
  type InstallationDocument,
} from '../../internal/installation/installation.ts';
import { queuePrefix } from '../../internal/installation/installation.ts';
import { eventually } from './wait.ts';

export const installationOf = (db: Db): Promise<InstallationDocument> =>
  eventually(
    'the installation',
    async () => (await db.collection<InstallationDocument>(INSTALLATION).findOne()) ?? undefined,
  );

export const queuePrefixOf = async (db: Db): Promise<string> =>
  queuePrefix((await installationOf(db)).id);
