/**
 * Secrets that stand in this repository for the evaluation: everybody has them, so they count
 * nowhere else. Pure.
 */
import { hashApiKey } from './api-key.ts';

const PUBLISHED_KEYS = ['pik_evaluation_only_not_for_production'];
const PUBLISHED_LINK_SECRETS = ['evaluation only, not a secret for production'];

const publishedHashes = new Set(PUBLISHED_KEYS.map(hashApiKey));

/** By hash, because a Secret may hold only the digest of a key. */
export const isPublishedKey = (keyHash: string): boolean => publishedHashes.has(keyHash);

/** `value` may have a key id, or be two secrets. */
export const hasPublishedSecret = (value: string): boolean =>
  PUBLISHED_LINK_SECRETS.some((secret) => value.includes(secret));
