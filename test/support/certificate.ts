/** Self-signed certificates, new for each test. */
import { execFileSync } from 'node:child_process';
import { chmodSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Writes `key.pem` and `ca.pem` into `folder`, for names such as `DNS:localhost`, valid for a day.
 */
export function makeCertificate(folder: string, names: readonly string[] = ['IP:127.0.0.1']): void {
  const kind = '-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1'.split(' ');
  const subject = ['-subj', '/CN=here', '-addext', `subjectAltName=${names.join(',')}`];
  const files = ['-keyout', join(folder, 'key.pem'), '-out', join(folder, 'ca.pem')];
  execFileSync('openssl', ['req', ...kind, ...subject, ...files], { stdio: 'ignore' });
  chmodSync(join(folder, 'key.pem'), 0o644);
}

/** What a server needs of them. */
export const certificateIn = (folder: string): { readonly key: Buffer; readonly cert: Buffer } => ({
  key: readFileSync(join(folder, 'key.pem')),
  cert: readFileSync(join(folder, 'ca.pem')),
});
