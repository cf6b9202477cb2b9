/** Secrets that this repository publishes for the evaluation; they are not accepted elsewhere. */
import { hashApiKey } from './api-key.ts';

const PUBLISHED_KEYS = [
  'pik_evaluation_only_not_for_production',
  'pik_test_evaluation_only_not_for_production',
];
const PUBLISHED_LINK_SECRETS = ['evaluation only, not a secret for production'];

const publishedHashes = new Set(PUBLISHED_KEYS.map(hashApiKey));

/** A Secret may hold only the digest. */
export const isPublishedKey = (keyHash: string): boolean => publishedHashes.has(keyHash);

/** `value` may hold a key id, or two secrets. */
export const hasPublishedSecret = (value: string): boolean =>
  PUBLISHED_LINK_SECRETS.some((secret) => value.includes(secret));
