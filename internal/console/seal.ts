/** Hides a search in the form that asks for its next page, so that no page holds personal data. */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const CIPHER = 'aes-256-gcm';

export class Seal {
  /** A restarted console asks for the search again. */
  readonly #key = randomBytes(32);

  close(content: unknown): string {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(CIPHER, this.#key, nonce);
    const text = cipher.update(JSON.stringify(content), 'utf8');
    return Buffer.concat([nonce, text, cipher.final(), cipher.getAuthTag()]).toString('base64url');
  }

  /** Undefined if it is not ours. */
  open(sealed: string): unknown {
    const bytes = Buffer.from(sealed, 'base64url');
    try {
      const cipher = createDecipheriv(CIPHER, this.#key, bytes.subarray(0, NONCE_BYTES));
      cipher.setAuthTag(bytes.subarray(-TAG_BYTES));
      const text = cipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES));
      return JSON.parse(Buffer.concat([text, cipher.final()]).toString('utf8'));
    } catch {
      return undefined;
    }
  }
}
