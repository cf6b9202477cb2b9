/** Certificates made a moment ago, each its own CA. */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';

/**
 * Writes `key.pem` and `ca.pem` into `folder`: a certificate for 127.0.0.1 and these names, valid
 * for a day.
 */
export function makeCertificate(folder: string, names: readonly string[] = []): void {
  const kind = [
    '-x509',
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-nodes',
    '-days',
    '1',
  ];
  const alternatives = ['IP:127.0.0.1', ...names.map((name) => `DNS:${name}`)].join(',');
  const subject = ['-subj', '/CN=127.0.0.1', '-addext', `subjectAltName=${alternatives}`];
  const files = ['-keyout', join(folder, 'key.pem'), '-out', join(folder, 'ca.pem')];
  execFileSync('openssl', ['req', ...kind, ...subject, ...files], { stdio: 'ignore' });
  execFileSync('chmod', ['644', join(folder, 'key.pem')]);
}
