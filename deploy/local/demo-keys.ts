/** Writes partner Secrets as manifests into a folder: the demo partners of `make run`, and those of tests. */
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PARTNER_LABEL, STATUS_ANNOTATION } from '../../internal/partner/key-secret.ts';

export interface DemoPartner {
  readonly partner: string;
  readonly keys: readonly string[];
  readonly status?: string;
}

/** One Secret for the partner in `<partner>.yaml`, replaced in one step so that no reader sees half of it. */
export async function writePartnerSecret(folder: string, { partner, keys, status }: DemoPartner): Promise<string> {
  await mkdir(folder, { recursive: true });
  const file = join(folder, `${partner}.yaml`);
  const text = [
    'apiVersion: v1',
    'kind: Secret',
    'metadata:',
    `  name: partner-${partner}`,
    '  namespace: partner-keys',
    '  labels:',
    `    ${PARTNER_LABEL}: ${partner}`,
    ...(status === undefined ? [] : ['  annotations:', `    ${STATUS_ANNOTATION}: ${status}`]),
    'stringData:',
    ...keys.map((key, index) => `  key-${index + 1}: ${JSON.stringify(key)}`),
    '',
  ].join('\n');
  await writeFile(`${file}.new`, text);
  await rename(`${file}.new`, file);
  return file;
}
