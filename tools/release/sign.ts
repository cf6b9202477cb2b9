/** Signs the files of a release with cosign, and verifies them as docs/verify.md says. */
import { chmod, readFile, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { exists } from '../../deploy/local/stores/cache.ts';
import { sha256 } from './image.ts';
import { run } from '../program.ts';

const VERIFY_PAGE = fileURLToPath(new URL('../../docs/verify.md', import.meta.url));
const GITHUB_ISSUER = 'https://token.actions.githubusercontent.com';
/** Nothing leaves the machine: a key needs no public log. */
const OFFLINE = ['--tlog-upload=false', '--use-signing-config=false'];

export type Signer =
  | { readonly kind: 'key'; readonly file: string; readonly isTrial: boolean }
  | { readonly kind: 'workflow'; readonly identity: string };

export interface Signing {
  readonly signer: Signer;
  /** The folder of the release. */
  readonly folder: string;
  readonly cosign: string;
}

/**
 * KEY is a file, a key of a key service in cosign's form, or `workflow`: the identity of the GitHub
 * workflow that runs. Without KEY a key is made that only shows how it is done.
 */
export async function chooseSigner(
  key: string,
  trialFolder: string,
  cosign: string,
): Promise<Signer> {
  if (key === 'workflow') {
    const ref = process.env['GITHUB_WORKFLOW_REF'] ?? '';
    if (ref === '')
      throw new Error('KEY=workflow needs GITHUB_WORKFLOW_REF, which a GitHub workflow has');
    return { kind: 'workflow', identity: `https://github.com/${ref}` };
  }
  if (key !== '') {
    // cosign runs in the folder of the release.
    const file = resolve(key);
    return { kind: 'key', file: (await exists(file)) ? file : key, isTrial: false };
  }
  const file = join(trialFolder, 'cosign.key');
  if (!(await exists(file))) {
    await run(cosign, ['generate-key-pair'], { cwd: trialFolder, env: withPassword() });
  }
  return { kind: 'key', file, isTrial: true };
}

/** Writes `cosign.pub` into the release and gives its SHA-256, where a key signs. */
export async function writePublicKey({
  signer,
  folder,
  cosign,
}: Signing): Promise<string | undefined> {
  if (signer.kind === 'workflow') return undefined;
  const { out: text } = await run(cosign, ['public-key', '--key', signer.file], {
    env: withPassword(),
  });
  await writeFile(join(folder, 'cosign.pub'), text);
  const der = Buffer.from(text.replaceAll(/-----[^-]+-----|\s/g, ''), 'base64');
  return sha256(der).replace('sha256:', '');
}

/** Signs one file: `NAME.sigstore.json` holds the signature. */
export async function signFile(signing: Signing, name: string): Promise<void> {
  await sign(signing, 'sign-blob', ['--bundle', `${name}.sigstore.json`, name]);
}

/** Signs an in-toto statement. The bundle holds it whole. */
export async function signStatement(
  signing: Signing,
  name: string,
  statement: object,
): Promise<void> {
  const file = join(dirname(signing.folder), `${name}.statement.json`);
  await writeFile(file, JSON.stringify(statement));
  await sign(signing, 'attest-blob', ['--bundle', `${name}.sigstore.json`, '--statement', file]);
}

async function sign(
  { signer, folder, cosign }: Signing,
  command: string,
  args: readonly string[],
): Promise<void> {
  const by = signer.kind === 'key' ? ['--key', signer.file, ...OFFLINE] : [];
  await run(cosign, [command, '--yes', ...by, ...args], { cwd: folder, env: withPassword() });
  // cosign keeps its bundles from others.
  await Promise.all(
    args
      .filter((one) => one.endsWith('.sigstore.json'))
      .map((one) => chmod(join(folder, one), 0o644)),
  );
}

/** A key made for a trial has an empty password; cosign would ask for one on the terminal. */
function withPassword(): NodeJS.ProcessEnv {
  return { COSIGN_PASSWORD: '', ...process.env };
}

/** The commands of docs/verify.md, each on a line. */
export async function verifyCommands(): Promise<string[]> {
  const page = await readFile(VERIFY_PAGE, 'utf8');
  const block = [...page.matchAll(/```sh\n([^`]*)```/g)]
    .map(([, text = '']) => text)
    .find((text) => /verify-blob/.test(text));
  return (block ?? '').trim().split('\n');
}

/** Runs them in the folder as a user does, and rejects where one fails. */
export async function verify({ signer, folder, cosign }: Signing): Promise<void> {
  const by =
    signer.kind === 'key'
      ? '--key cosign.pub --insecure-ignore-tlog'
      : `--certificate-identity ${signer.identity} --certificate-oidc-issuer ${GITHUB_ISSUER}`;
  const env = { ...process.env, by, PATH: `${dirname(cosign)}:${process.env['PATH'] ?? ''}` };
  for (const command of await verifyCommands()) {
    await run('bash', ['-euo', 'pipefail', '-c', command], { cwd: folder, env });
  }
}
