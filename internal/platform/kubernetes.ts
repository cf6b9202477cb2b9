/**
 * The Kubernetes API: which one we talk to, clients whose every call ends, and watches that end and
 * say why.
 */
import { existsSync } from 'node:fs';
import {
  KubeConfig,
  ServerConfiguration,
  Watch,
  createConfiguration,
  type ApiType,
} from '@kubernetes/client-node';
import { contactReason } from './contact.ts';
import { pause } from './deadline.ts';

/** Where a pod finds its own account. */
const SERVICE_ACCOUNT_TOKEN = '/var/run/secrets/kubernetes.io/serviceaccount/token';

/** What an API server said about a failed call. */
export class KubernetesError extends Error {
  override readonly name = 'KubernetesError';
  /** HTTP status, also when it came inside a stream. */
  readonly code: number;
  constructor(code: number) {
    super(`the API server answered ${code}`);
    this.code = code;
  }
}

/** HTTP status of a failed call, or undefined when no answer came. */
export function kubernetesStatus(error: unknown): number | undefined {
  const { code, statusCode } = (error ?? {}) as { code?: unknown; statusCode?: unknown };
  return [code, statusCode].find(
    (status): status is number => typeof status === 'number' && status >= 400,
  );
}

export interface WatchEvent {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK';
  readonly object: unknown;
}

export class Kubernetes {
  readonly #config = new KubeConfig();

  /**
   * With the file `kubeconfig`, else with the pod's own service account.
   * Throws when there is neither, or the file cannot be used.
   */
  constructor(kubeconfig: string | undefined) {
    if (kubeconfig !== undefined) {
      this.#config.loadFromFile(kubeconfig);
      if (this.#config.getCurrentCluster() === null)
        throw new Error(`KUBECONFIG: ${kubeconfig} names no current cluster`);
    } else if (existsSync(SERVICE_ACCOUNT_TOKEN)) {
      this.#config.loadFromCluster();
    } else {
      throw new Error(
        'no Kubernetes API: KUBECONFIG is not set, and this is no pod with a service account',
      );
    }
  }

  /** Why a call failed, for an operator: no body. */
  reason(error: unknown): string {
    const server = {
      name: 'Kubernetes API',
      at: URL.canParse(this.#server()) ? new URL(this.#server()).host : undefined,
      setting: 'KUBECONFIG or the service account',
      rights: 'the Role and RoleBinding of the service account',
    };
    return contactReason(server, error);
  }

  /**
   * A client whose every call ends within `timeoutMs`, whatever the server does (the library has no
   * time-out). The library opens a connection for each call, so none is left over from a server
   * that has gone.
   */
  client<Api extends ApiType>(
    api: new (configuration: ReturnType<typeof createConfiguration>) => Api,
    timeoutMs: number,
  ): Api {
    return new api(
      createConfiguration({
        baseServer: new ServerConfiguration(this.#server(), {}),
        authMethods: { default: this.#config },
        promiseMiddleware: [
          {
            pre: (request) => {
              request.setSignal(AbortSignal.timeout(timeoutMs));
              return Promise.resolve(request);
            },
            post: (response) => Promise.resolve(response),
          },
        ],
      }),
    );
  }

  /**
   * One watch of `path`, which the server is asked to end after `seconds`. Resolves when it does;
   * rejects with a `KubernetesError` (also for an ERROR event), when the connection breaks, when
   * `onEvent` throws, and `graceMs` after the server should have ended it: then it hangs. Resolves,
   * too, when `signal` aborts.
   */
  async watch(
    path: string,
    options: {
      readonly query: Readonly<Record<string, string>>;
      readonly seconds: number;
      readonly graceMs: number;
      readonly signal: AbortSignal;
      onEvent(event: WatchEvent): void;
    },
  ): Promise<void> {
    const over = new AbortController();
    const signal = AbortSignal.any([options.signal, over.signal]);
    const ended = new Promise<void>((resolve, reject) => {
      const onEvent = (type: string, object: unknown): void => {
        if (signal.aborted) return;
        try {
          if (type === 'ERROR') throw new KubernetesError(kubernetesStatus(object) ?? 500);
          options.onEvent({ type: type as WatchEvent['type'], object });
        } catch (error) {
          reject(error);
        }
      };
      const query = {
        ...options.query,
        timeoutSeconds: options.seconds,
        allowWatchBookmarks: true,
      };
      const opening = new Watch(this.#config).watch(path, query, onEvent, (error: unknown) => {
        if (error === null || error === undefined) resolve();
        else reject(error);
      });
      // The library can end a watch only after the server has answered.
      opening.then((open) => {
        if (signal.aborted) open.abort();
        else signal.addEventListener('abort', () => open.abort(), { once: true });
      }, reject);
    });
    // The loser of the race below is not awaited.
    ended.catch(() => {});
    const deadline = async (): Promise<void> => {
      await pause(options.seconds * 1_000 + options.graceMs, signal);
      if (!signal.aborted) throw new Error('the watch hangs');
    };
    try {
      await Promise.race([ended, deadline()]);
    } finally {
      over.abort();
    }
  }

  #server(): string {
    return this.#config.getCurrentCluster()?.server ?? '';
  }
}
