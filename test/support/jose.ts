/** Programs that check receipts with the libraries of other languages, as partners have them. */
import { copyFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { cached, installLog } from '../../deploy/local/stores/cache.ts';
import { run } from '../../deploy/local/stores/process.ts';
import { goCommand } from '../../tools/go.ts';
import { ROOT } from '../../tools/root.ts';
import { pythonWith } from './schemathesis.ts';

const PYJWT = '2.15.1';
const GO_JOSE = 'v4.0.5';
const BUILD_TIMEOUT_MS = 5 * 60_000;

/** Both take a JWK set and a file of receipts; they print the claims of each, or `refused`. */
const GO = join(ROOT, 'test/support/go-jose/main.go');
const PYTHON = `import json, jwt, sys
keys = {key.key_id: key for key in jwt.PyJWKSet.from_json(open(sys.argv[1]).read()).keys}
for line in open(sys.argv[2]):
    try:
        receipt = line.rstrip("\\n")
        key = keys[jwt.get_unverified_header(receipt)["kid"]]
        print(json.dumps(jwt.decode(receipt, key, algorithms=["ES256"])))
    except (jwt.InvalidTokenError, KeyError):
        print("refused")
`;

export interface Verifiers {
  readonly goJose: string;
  readonly python: string;
}

/** Installs and builds both into the cache if missing. Throws if it cannot. */
export async function findVerifiers(
  log: (line: string) => void = () => undefined,
): Promise<Verifiers> {
  const python = await pythonWith('pyjwt[crypto]', PYJWT, log);
  const part = `go-jose-${GO_JOSE}`;
  const folder = await cached(part, log, async (path) => {
    const go = await goCommand(log);
    log(`building ${part} with Go (once)`);
    mkdirSync(path, { recursive: true });
    copyFileSync(GO, join(path, 'main.go'));
    const step = (...command: string[]): Promise<void> =>
      run({
        command: [go, '-C', path, ...command],
        env: { ...process.env, CGO_ENABLED: '0' },
        logFile: installLog(part),
        timeoutMs: BUILD_TIMEOUT_MS,
      });
    await step('mod', 'init', 'verify');
    await step('get', `github.com/go-jose/go-jose/v4@${GO_JOSE}`);
    await step('build', '-o', 'verify');
  });
  return { goJose: join(folder, 'verify'), python };
}

/** The command that checks receipts against a set, both in files. */
export const verifyCommands = ({ goJose, python }: Verifiers) => ({
  'go-jose': [goJose],
  PyJWT: [python, '-c', PYTHON],
});
