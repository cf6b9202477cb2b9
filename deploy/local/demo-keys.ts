/**
 * Writes partner Secrets as manifests into a folder: the demo partners of `make run`, and those of
 * tests.
 */
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { partnerSecretManifest } from '../../internal/operators/cli/secret-manifest.ts';
import { STATUS_ANNOTATION } from '../../internal/partner/key-secret.ts';
import { defined } from '../../internal/platform/process/defined.ts';

export interface DemoPartner {
  readonly partner: string;
  /** The name of the Secret and of its file, for one more of the same partner. */
  readonly name?: string;
  readonly keys: readonly string[];
  readonly status?: string;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** Writes the Secret into `<name or partner>.yaml`, in one step so that no reader sees half of it. */
export async function writePartnerSecret(folder: string, wanted: DemoPartner): Promise<string> {
  const { partner, keys, status, name = `partner-${partner}` } = wanted;
  await mkdir(folder, { recursive: true });
  const file = join(folder, `${wanted.name ?? partner}.yaml`);
  const { yaml } = partnerSecretManifest({
    partner,
    keys,
    annotations: { ...wanted.annotations, ...defined({ [STATUS_ANNOTATION]: status }) },
    name,
    namespace: 'partner-keys',
  });
  await writeFile(`${file}.new`, yaml);
  await rename(`${file}.new`, file);
  return file;
}
