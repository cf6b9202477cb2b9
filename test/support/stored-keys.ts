/** The keys as the controller has stored them. */
import type { Db } from 'mongodb';
import { hashApiKey } from '../../internal/partner/api-key.ts';
import { KeyDocuments, type StoredKey } from '../../internal/partner/key-document.ts';
import { systemClock } from '../../internal/platform/process/clock.ts';

export async function storedKeys(db: Db): Promise<readonly StoredKey[]> {
  return (await new KeyDocuments({ db, clock: systemClock }).read())?.keys ?? [];
}

export async function storedKey(db: Db, key: string): Promise<StoredKey | undefined> {
  return (await storedKeys(db)).find(({ hash }) => hash === hashApiKey(key));
}
