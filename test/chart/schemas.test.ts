/** Checks each field of the chart's objects in all versions of Kubernetes that it is for. */
import { expect, test } from '@jest/globals';
import {
  chartYaml,
  evaluation,
  everything,
  examples,
  production,
  render,
  renderExample,
  type Rendered,
} from '../support/chart.ts';
import { schemaFaults } from '../support/kubernetes-schemas.ts';

const VERSIONS = ['1.30', '1.31', '1.32', '1.33', '1.34'];
/** Groups of operators, of whose kinds Kubernetes has no schema. */
const FOREIGN =
  /^(?:monitoring\.(?:coreos|googleapis)\.com|keda\.sh|gateway\.(?:networking\.k8s|envoyproxy)\.io|networking\.gke\.io)\//;

const isOwn = ({ apiVersion }: Rendered): boolean => !FOREIGN.test(apiVersion);

test('each version finds what is wrong in an object, and nothing in ours', async () => {
  expect(chartYaml['kubeVersion']).toBe(`>=${VERSIONS[0]}.0-0`);
  const presets = [evaluation, production, everything].map((values) => render(values));
  const overlays = examples.map((name) => renderExample(name, {}, 'demo'));
  const objects = (await Promise.all([...presets, ...overlays])).flat();
  const right = objects.find(({ kind }) => kind === 'Deployment')!;
  const misspelt = { ...right, spec: { ...right['spec'], replicass: 1 } };
  const unknown = { ...right, apiVersion: 'extensions/v1beta1' };
  expect(await schemaFaults(VERSIONS, [...objects.filter(isOwn), misspelt, unknown])).toEqual(
    VERSIONS.flatMap((version) => [
      expect.stringMatching(`${version} .*replicass`),
      expect.stringMatching(`${version} .*unknown extensions/v1beta1`),
    ]),
  );
});
