/** Clients and watches of the Kubernetes API whose calls always end. */
import { existsSync } from 'node:fs';
import {
  KubeConfig,
  ServerConfiguration,
  Watch,
  createConfiguration,
  type ApiType,
} from '@kubernetes/client-node';
import { contactFault } from './contact-failure.ts';
import { withDeadline } from './deadline.ts';
import type { Fault } from './fault.ts';

const SERVICE_ACCOUNT_TOKEN = '/var/run/secrets/kubernetes.io/serviceaccount/token';
/** A silently dead connection hides a change for at most 13 s. */
const WATCH_SECONDS = 10;
const WATCH_GRACE_MS = 3_000;

class KubernetesError extends Error {
  override readonly name = 'KubernetesError';
  /** HTTP status, also of an error inside a stream. */
  readonly code: number;
  constructor(code: number) {
    super(`the API server answered ${code}`);
    this.code = code;
  }
}

/** Undefined if no answer came. */
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

  /** Uses the file `kubeconfig`, or else the pod's service account; throws if neither works. */
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

  faultOf(error: unknown): Fault {
    const server = {
      name: 'Kubernetes API',
      at: URL.canParse(this.#server()) ? new URL(this.#server()).host : undefined,
      setting: 'KUBECONFIG or the service account',
      login: 'whether the token of KUBECONFIG or of the service account has ended',
      rights: 'the Role and RoleBinding of the service account',
    };
    const proxy = this.#config.getCurrentCluster()?.proxyUrl ?? '';
    return contactFault(server, error, {
      through: URL.canParse(proxy) ? new URL(proxy).host : undefined,
    });
  }

  /**
   * The library has no time-out, so each call gets one. It opens a connection per call, so no call
   * meets a dead one.
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
   * Resolves when the server ends the watch after `WATCH_SECONDS`, or `signal` aborts. Rejects with
   * `KubernetesError` for a status or an ERROR event, if the connection breaks, if `onEvent`
   * throws, and with `DeadlineError` if the server does not end it.
   */
  async watch(
    path: string,
    options: {
      readonly query: Readonly<Record<string, string>>;
      readonly signal: AbortSignal;
      onEvent(event: WatchEvent): void;
    },
  ): Promise<void> {
    const over = new AbortController();
    const signal = AbortSignal.any([options.signal, over.signal]);
    const ended = new Promise<void>((resolve, reject) => {
      signal.addEventListener('abort', () => resolve(), { once: true });
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
        timeoutSeconds: WATCH_SECONDS,
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
    try {
      await withDeadline(ended, WATCH_SECONDS * 1_000 + WATCH_GRACE_MS, 'a watch');
    } finally {
      over.abort();
    }
  }

  #server(): string {
    return this.#config.getCurrentCluster()?.server ?? '';
  }
}
