/** Partner Secrets from the Kubernetes API: several namespaces, each read for itself, so that one failing costs only its own. */
import { ofOneNamespaceEach, type KeySource, type Problem } from '../partner/key-secret.ts';
import { FollowedNamespace, type FollowTools } from './followed-namespace.ts';
import { STALE_MS } from './limits.ts';
import type { SecretSource } from './secret-source.ts';

export function kubernetesSource(namespaces: readonly string[], tools: FollowTools): SecretSource {
  return {
    follow(onChange, signal) {
      const followed = namespaces.map((name) => new FollowedNamespace(name, tools, onChange, signal));
      const hasBeenRead = (name: string): boolean =>
        followed.some((one) => one.name === name && one.secrets !== undefined);
      return {
        async list() {
          await Promise.all(followed.map((namespace) => namespace.tried));
          const seen = ofOneNamespaceEach(followed.flatMap((namespace) => namespace.secrets ?? []));
          const unread = followed.flatMap(({ name, fault }) => (fault === undefined ? [] : [unreadable(name, fault)]));
          const complete = namespaces.every(hasBeenRead);
          const provesGone = ({ namespace }: KeySource): boolean => complete || hasBeenRead(namespace);
          const asOf = new Date(Math.min(...followed.map(({ seenAt }) => seenAt?.getTime() ?? 0)));
          return { secrets: seen.secrets, problems: [...unread, ...seen.problems], complete, provesGone, asOf };
        },
        faults: () =>
          followed.flatMap(({ name, seenAt, fault }) => {
            const age = tools.clock.now().getTime() - (seenAt?.getTime() ?? 0);
            return age < STALE_MS
              ? []
              : [
                  `partner Secrets in ${name} have not been seen for over ${STALE_MS / 1_000} s: ${fault ?? 'no answer'}`,
                ];
          }),
      };
    },
  };
}

function unreadable(namespace: string, fault: string): Problem {
  return {
    source: { namespace, name: '', uid: '' },
    code: 'unreadable_namespace',
    message: `partner Secrets in ${namespace} cannot be read, and those last seen stay in force: ${fault}`,
  };
}
