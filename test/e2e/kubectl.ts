/** Runs kubectl and helm against the cluster of the tests. */
import { parse } from 'yaml';
import { run, type Ended } from '../../tools/program.ts';
import type { ClusterTools } from './cluster.ts';

const TIMEOUT_MS = 60_000;
/** Five minutes for `helm --wait`, and time for its message. */
const HELM_TIMEOUT_MS = 330_000;
const HELM_WAIT = '5m';

export interface PodInfo {
  readonly metadata: {
    readonly name: string;
    readonly uid: string;
    readonly labels: Readonly<Record<string, string>>;
    readonly deletionTimestamp?: string;
  };
  readonly spec: { readonly containers: readonly { readonly image: string }[] };
  readonly status: {
    readonly phase: string;
    readonly hostIP?: string;
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
    readonly containerStatuses?: readonly { readonly restartCount: number }[];
  };
}

/** Words of a command, or the command if none of them has a space. */
type Words = string | readonly string[];
const wordsOf = (given: Words): readonly string[] =>
  typeof given === 'string' ? given.split(' ') : given;

export class Kubectl {
  readonly #tools: ClusterTools;
  readonly namespace: string;

  constructor(tools: ClusterTools, namespace: string) {
    this.#tools = tools;
    this.namespace = namespace;
  }

  get program(): string {
    return this.#tools.kubectl;
  }

  get environment(): NodeJS.ProcessEnv {
    return { ...process.env, KUBECONFIG: this.#tools.kubeconfig };
  }

  async run(args: Words, options: { readonly input?: string; readonly timeoutMs?: number } = {}) {
    const { out } = await run(this.program, ['--namespace', this.namespace, ...wordsOf(args)], {
      timeoutMs: TIMEOUT_MS,
      env: this.environment,
      ...options,
    });
    return out;
  }

  async json<T>(args: Words): Promise<T> {
    return JSON.parse(await this.run([...wordsOf(args), '--output=json'])) as T;
  }

  async apply(...objects: readonly object[]): Promise<void> {
    await run(this.program, ['apply', '--filename=-'], {
      timeoutMs: TIMEOUT_MS,
      env: this.environment,
      input: objects.map((object) => JSON.stringify(object)).join('\n'),
    });
  }

  async pods(component?: string): Promise<PodInfo[]> {
    const selector =
      component === undefined ? [] : [`--selector=app.kubernetes.io/component=${component}`];
    return (await this.json<{ items: PodInfo[] }>(['get', 'pods', ...selector])).items;
  }

  /** Names of all listable objects, such as `secret/x`, except transient ones. */
  async everything(): Promise<string[]> {
    const said = await this.run('api-resources --verbs=list --namespaced --output=name');
    const kinds = said.trim().split('\n');
    const kept = kinds.filter(
      (kind) => !/^(events|endpoints|endpointslices|podmetrics|localsubject)/.test(kind),
    );
    const listed = await this.run(['get', kept.join(','), '--output=name', '--ignore-not-found']);
    return listed.split('\n').filter((line) => line !== '');
  }

  async helm(args: readonly string[], values: readonly object[] = []): Promise<Ended> {
    return await run(this.#tools.helm, ['--namespace', this.namespace, ...args], {
      timeoutMs: HELM_TIMEOUT_MS,
      env: this.environment,
      input: values.map((value) => JSON.stringify(value)).join('\n'),
    });
  }

  helmAndWait(args: readonly string[], values: readonly object[] = []): Promise<Ended> {
    return this.helm([...args, '--wait', '--timeout', HELM_WAIT], values);
  }

  async helmYaml<T>(args: readonly string[]): Promise<T> {
    return parse((await this.helm([...args, '--output', 'yaml'])).out) as T;
  }
}

export function isReady(pod: PodInfo): boolean {
  return (
    pod.metadata.deletionTimestamp === undefined &&
    pod.status.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True') ===
      true
  );
}
