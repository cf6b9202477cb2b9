/** Runs the command blocks of the pages as printed, under the printed names. */
import { afterAll, beforeAll, expect } from '@jest/globals';
import { resolve } from 'node:path';
import { readFileSync } from 'node:fs';
import { Agent } from 'node:https';
import { MongoClient, type Collection } from 'mongodb';
import { parse } from 'yaml';
import { ROOT } from '../../tools/root.ts';
import { hashApiKey, keyIdOf } from '../../internal/partner/api-key.ts';
import { SUBMISSIONS } from '../../internal/submission/submission.ts';
import { send } from '../support/http.ts';
import { read } from '../support/pages.ts';
import { requestIdOf } from '../support/world.ts';
import { eventually } from '../support/wait.ts';
import { certificateIn, connectionTo, INGRESS_HOST } from './ingress.ts';
import { Kubectl } from './kubectl.ts';
import { PortForward } from './port-forward.ts';
import { Reader } from './reader.ts';
import { addressOf, remove, type Release } from './release.ts';
import { openShared, step as stepIn } from './world.ts';

/** The two releases of the pages, which share the stores of the evaluation. */
const TRY: Release = release('try', 'try-partner-ingest');
const PRODUCTION: Release = release('partner-ingest', 'partner-ingest');
const NAMESPACES = [TRY, PRODUCTION].flatMap(({ namespace, keysNamespace }) => [
  namespace,
  keysNamespace,
]);
const DATABASE = 'production';
/** Both must start beside the shared install on a node with two processors. */
const SMALL = { resources: { requests: { cpu: '10m' } } };
const PODS = { ingest: 3, processor: 2, controller: 2, console: 1 };

const { tools, images, ingress } = openShared();
const agent = ingress === undefined ? {} : { agent: new Agent(connectionTo(ingress)) };
const kubectl = new Kubectl(tools, PRODUCTION.namespace);
/** What stands here for the placeholders that the pages print. */
const IN_PLACE = new Map([
  ['registry.example.com/partner-ingest', `${images.repository} --values cluster.values.yaml`],
  [
    'mongodb://USER:PASSWORD@db-0,db-1,db-2/?replicaSet=rs0&tls=true',
    `mongodb://${TRY.fullname}-mongodb.try/?directConnection=true`,
  ],
  ['rediss://:PASSWORD@redis:6380', `redis://${TRY.fullname}-redis.try/1`],
  ['smtp://USER:PASSWORD@relay:587', `smtp://${TRY.fullname}-mail.try:1025`],
]);
let reader: Reader;
let [free, key, url] = [false, '', ''];

function release(name: string, fullname: string): Release {
  return { name, namespace: name, fullname, keysNamespace: `${fullname}-keys` };
}

const step = (name: string, run: () => Promise<void>): void => stepIn(name, run, NAMESPACES);

beforeAll(async () => {
  const taken = await kubectl.run(
    `get namespace ${NAMESPACES.join(' ')} --ignore-not-found --output=name`,
  );
  if (taken !== '')
    throw new Error(`the cluster has the pages' own names already: ${taken.trim()}`);
  free = true;
  reader = await Reader.open(tools, IN_PLACE, ingress);
}, 60_000);

afterAll(async () => {
  if (!free) return;
  await reader.close();
  await Promise.all([remove(tools, TRY), remove(tools, PRODUCTION)]);
}, 400_000);

/** Sends an application; returns the status code. */
async function post(apiKey: string, body = '{}') {
  return await send(url, { ...agent, key: apiKey, body });
}

const becomes = (apiKey: string, status: number): Promise<boolean> =>
  eventually(`an answer ${status}`, async () => (await post(apiKey)).status === status);

/** Reads the key that `keys new` printed. */
function madeKey(said: string): { readonly key: string; readonly secret: string } {
  const [, made = ''] = /the key, shown only now: (pik_\S+)/.exec(said) ?? [];
  const [, secret = ''] = /secret\/(\S+) created/.exec(said) ?? [];
  expect({ made, secret }).toEqual({
    made: expect.stringMatching(/^pik_/),
    secret: expect.stringMatching(/^partner-/),
  });
  return { key: made, secret };
}

async function podCounts(): Promise<Record<string, number>> {
  const pods = Object.groupBy(
    await kubectl.pods(),
    ({ metadata }) => metadata.labels['app.kubernetes.io/component'] ?? '',
  );
  return Object.fromEntries(
    Object.entries(pods).map(([component, of]) => [component, of?.length ?? 0]),
  );
}

step('install.md: the evaluation install, and `helm test`', async () => {
  const given =
    tools.values === undefined
      ? {}
      : (parse(readFileSync(resolve(ROOT, tools.values), 'utf8')) as Values);
  await reader.write('cluster.values.yaml', {
    ...given,
    image: { tag: images.current },
    evaluation: { ...given['evaluation'], mail: { image: images.mail } },
    ingest: SMALL,
    processor: SMALL,
    controller: SMALL,
  });
  expect(await reader.paste('docs/install.md', 'helm upgrade --install try ')).toMatch(
    /Phase:\s+Succeeded/,
  );
});

type Values = Readonly<Record<string, object>>;

/** Values of the Traefik overlay, or a NodePort. */
function wayIn(): object {
  if (ingress === undefined) return { service: { type: 'NodePort' }, allowPlainHttp: true };
  const overlay = parse(read('deploy/examples/traefik.values.yaml')) as Values;
  const { networkPolicy: _, ...others } = overlay;
  return { ...others, trustedProxies: ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16'] };
}

/** production.values.yaml for one node, on the stores of an evaluation. */
function productionValues(smtp = {}): object {
  const production = parse(read('deploy/examples/production.values.yaml')) as Values;
  return {
    ...production,
    image: { repository: images.repository, tag: images.current },
    mongodb: { ...production['mongodb'], database: DATABASE },
    ingest: { ...production['ingest'], ...SMALL },
    receipts: { existingSecret: 'partner-ingest-receipts' },
    erasureRegister: { existingClaim: 'erasures', existingSecret: 'erasures' },
    processor: SMALL,
    controller: SMALL,
    smtp: { ...production['smtp'], ...smtp },
    pods: {},
    ...wayIn(),
    allowInsecureStores: true,
  };
}

step('install.md: the Secrets and the production install', async () => {
  const matchLabels = { 'kubernetes.io/metadata.name': PRODUCTION.namespace };
  await new Kubectl(tools, TRY.namespace).apply({
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: { name: 'production', namespace: TRY.namespace },
    spec: {
      podSelector: {},
      ingress: [{ from: [{ namespaceSelector: { matchLabels } }] }],
    },
  });
  await reader.paste('docs/install.md', 'kubectl create namespace ');
  if (ingress !== undefined) await kubectl.apply(certificateIn(PRODUCTION.namespace));
  // The command needs no pod for this.
  await reader.type(`partner-ingest() { ${process.execPath} ${ROOT}cmd/cli/main.ts "$@"; }`);
  await reader.paste('docs/operations.md', 'partner-ingest receipt keys ');
  const metadata = { name: 'erasures', namespace: PRODUCTION.namespace };
  const stringData = { key: 'a key of the register for tests only' };
  await kubectl.apply({ apiVersion: 'v1', kind: 'Secret', metadata, stringData });
  await kubectl.apply({
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata,
    // The cluster has one node.
    spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '10Mi' } } },
  });
  expect(await reader.paste('docs/install.md', "printf 'password: '", 'p@ss/word')).toContain(
    'p%40ss%2Fword',
  );
  await reader.write('my-values.yaml', productionValues());
  const printed = await reader.paste('docs/install.md', 'helm upgrade --install partner-ingest ');
  expect(printed.match(/ 1\/1 +Running /g)).toHaveLength(8);
  expect(await podCounts()).toEqual(PODS);
  url = `https://${INGRESS_HOST}`;
  if (ingress !== undefined) return;
  url = await addressOf(kubectl, PRODUCTION);
  reader.inPlace.set(`https://${INGRESS_HOST}`, url);
});

step('install.md and operations.md: a partner, a key, the first 202, and its state', async () => {
  const made = madeKey(
    await reader.paste('docs/install.md', 'kubectl --namespace partner-ingest exec '),
  );
  key = made.key;
  reader.inPlace.set('pik_…', key);
  reader.inPlace.set('partner-acme-…', made.secret);
  let answer = '';
  await eventually('the first 202', async () => {
    answer = await reader.paste('docs/install.md', 'key=');
    return /HTTP\/[0-9.]+ 202/.test(answer);
  });
  reader.inPlace.set('req_…', /req_\w+/.exec(answer)?.[0] ?? '');
  await eventually('the request to be completed', async () => {
    return (await reader.paste('docs/operations.md', 'partner-ingest() {')).includes(
      '  completed\n',
    );
  });
});

step('operations.md: a key is rotated', async () => {
  const old = key;
  const made = madeKey(await reader.paste('docs/operations.md', 'partner-ingest keys new '));
  key = made.key;
  reader.inPlace.set('partner-acme-…', made.secret);
  await becomes(old, 401);
  await becomes(key, 202);
});

step('upgrade.md: upgrade and rollback', async () => {
  await reader.write('my-values.yaml', productionValues({ fromName: 'After the upgrade' }));
  await reader.paste('docs/upgrade.md', 'helm upgrade ');
  const asked = ['history', PRODUCTION.name];
  const history = await kubectl.helmYaml<{ description: string; status: string }[]>(asked);
  expect(history.map(({ description, status }) => `${status}: ${description}`)).toEqual([
    'superseded: Install complete',
    'superseded: Upgrade complete',
    'deployed: Rollback to 1',
  ]);
  await becomes(key, 202);
});

step('restore.md: stop, the command as a Job, what is lost, what is erased, start', async () => {
  const receipts: string[] = [];
  const submit = async (body: string): Promise<string> => {
    const headers = { prefer: 'receipt' };
    const answer = await send(url, { ...agent, key, body, headers });
    receipts.push(answer.headers['receipt'] ?? 'none');
    return requestIdOf(answer);
  };
  const lost = await submit('{}');
  const kept = await submit('{}');
  const gone = await submit('{"email":"gone@example.com"}');
  await reader.type(`printf '%s\\n' ${receipts.join(' ')} > receipted.txt`);
  await reader.paste('docs/runbooks/README.md', 'NS=');
  await eventually('the end of the request', async () =>
    (await reader.type(`partner-ingest show ${gone}`)).includes('  rejected\n'),
  );
  const back = await inRequests((requests) => requests.findOne({ _id: gone }));
  await reader.type(`partner-ingest erase ${gone} --yes --as jane`);
  await reader.paste('docs/restore.md', 'kubectl -n "$NS" get deploy -l ');
  expect(await podCounts()).toEqual({ console: 1 });
  // As a backup from before would have it.
  await inRequests(async (requests) => {
    expect(await requests.deleteOne({ _id: lost })).toMatchObject({ deletedCount: 1 });
    expect(await requests.replaceOne({ _id: gone }, back!)).toMatchObject({ modifiedCount: 1 });
  });
  await reader.paste('docs/restore.md', 'kubectl -n "$NS" get deploy "$NAME-processor"');
  await reader.type('partner-ingest audit');
  await reader.paste('docs/restore.md', 'keys=');
  const printed = await reader.paste('docs/restore.md', 'partner-ingest receipt missing ');
  expect(printed).toMatch(new RegExp(`^${lost}  acme .*missing$`, 'm'));
  expect(printed).not.toContain(kept);
  await reader.paste('docs/restore.md', 'kubectl -n "$NS" scale deploy "$NAME-controller"');
  const again = await reader.paste('docs/restore.md', 'partner-ingest erase --replay');
  expect(again).toMatch(new RegExp(`${gone} .*would be erased[^]*1 of 1 repeated`));
  expect(await inRequests((requests) => requests.findOne({ _id: gone }))).not.toHaveProperty(
    'body',
  );
  await reader.paste('docs/restore.md', 'kubectl -n "$NS" scale deploy "$NAME-processor"');
  await reader.paste('docs/runbooks/README.md', 'NS=');
  await reader.type('partner-ingest audit');
  await becomes(key, 202);
});

async function inRequests<T>(
  act: (requests: Collection<{ readonly _id: string }>) => Promise<T>,
): Promise<T> {
  const forward = new PortForward(
    new Kubectl(tools, TRY.namespace),
    `service/${TRY.fullname}-mongodb`,
    27_017,
  );
  const client = new MongoClient(`mongodb://${await forward.address()}/?directConnection=true`);
  try {
    return await act(client.db(DATABASE).collection(SUBMISSIONS));
  } finally {
    await client.close();
    forward.close();
  }
}

step('incident-leaked-key.md: from the first minute to a clean end', async () => {
  const page = 'docs/runbooks/incident-leaked-key.md';
  reader.inPlace.set('371b03fdc691', keyIdOf(hashApiKey(key)));
  await reader.paste(page, 'partner-ingest keys list ');
  await becomes(key, 401);
  await reader.paste(page, 'partner-ingest partner hold ');
  await eventually('the hold in both processors', async () => {
    const held = await reader.type('metrics processor | grep -c "partners_held{.*} 1$" || true');
    return held.trim() === String(PODS.processor);
  });
  key = madeKey(await reader.paste(page, 'partner-ingest keys new ')).key;
  await becomes(key, 202);
  expect(await reader.paste(page, 'partner-ingest find ')).toContain('req_');
  await reader.paste(page, 'partner-ingest close ');
  expect(await reader.paste(page, 'metrics ')).toContain('partner_ingest_keys_out_of_terms_total');
  expect(await reader.paste(page, 'kubectl ')).toContain('deleted');
  expect(await reader.paste(page, 'partner-ingest partner holds')).not.toMatch(/^acme +/m);
});

step('operations.md and upgrade.md: disable, enable, revoke, and the uninstall', async () => {
  const switched = await reader.paste('docs/operations.md', 'partner-ingest partner list');
  expect(switched).toContain('acme is enabled');
  await becomes(key, 202);
  reader.inPlace.set('371b03fdc691', keyIdOf(hashApiKey(key)));
  await reader.paste('docs/operations.md', 'partner-ingest keys list ');
  await becomes(key, 401);
  await reader.paste('docs/upgrade.md', 'helm uninstall ');
  const keys = new Kubectl(tools, PRODUCTION.keysNamespace);
  const kept = await keys.run('get secrets --output=name');
  expect(kept).toMatch(/^secret\/partner-acme-[0-9a-f]{12}\n$/);
});

step('every block of these pages was run', async () => expect(reader.left).toEqual([]));
