/** Checks objects against the OpenAPI schemas of several versions of Kubernetes. */
import { endOf } from '../../tools/program.ts';
import type { Rendered } from './chart.ts';
import { pythonWith } from './schemathesis.ts';

const PACKAGE = 'kubernetes-validate';
const VERSION = '1.34.1';
const TIMEOUT_MS = 120_000;

/** The package reads a schema again for each object, so its files are kept. */
const PROGRAM = `
import functools, json, sys
from kubernetes_validate import utils
utils.schema_contents = functools.cache(utils.schema_contents)
asked = json.load(sys.stdin)
faults = []
for version in asked['versions']:
    for item in asked['objects']:
        what = f"{version} {item['kind']} {item['metadata']['name']}"
        try:
            utils.validate(item, version, strict=True)
        except utils.SchemaNotFoundError:
            faults.append(f"{what}: unknown {item['apiVersion']}")
        except utils.ValidationError as error:
            faults.append(f"{what}: {'.'.join(map(str, error.path))}: {error.message}")
print(json.dumps(faults))
`;

export const findSchemas = (log?: (line: string) => void): Promise<string> =>
  pythonWith(PACKAGE, VERSION, log);

/** Unknown fields, wrong types and unknown kinds, each with its version. */
export async function schemaFaults(
  versions: readonly string[],
  objects: readonly Rendered[],
): Promise<string[]> {
  const input = JSON.stringify({ versions, objects });
  const options = { input, timeoutMs: TIMEOUT_MS };
  const { code, out, err } = await endOf(await findSchemas(), ['-c', PROGRAM], options);
  if (code !== 0) throw new Error(err);
  return JSON.parse(out) as string[];
}
