/**
 * Stand-ins for the definitions of operators that examples name: the fields those examples use,
 * with their types, so that the API server refuses a misspelt one. Where the real definition is
 * there already, it stays.
 */

type Schema = Readonly<Record<string, unknown>>;
const text: Schema = { type: 'string' };
const number: Schema = { type: 'integer' };
const flag: Schema = { type: 'boolean' };
const list = (items: Schema): Schema => ({ type: 'array', items });
const fields = (properties: Readonly<Record<string, Schema>>): Schema => ({
  type: 'object',
  properties,
});
const texts: Schema = { type: 'object', additionalProperties: text };
/** Kubernetes' own shapes, or those of an operator that a user gives: not judged here. */
const any: Schema = { 'x-kubernetes-preserve-unknown-fields': true };

const selector = fields({ matchLabels: texts, matchExpressions: any });
const target = fields({ group: text, kind: text, name: text });
const endpoint = fields({
  port: text,
  path: text,
  interval: text,
  scrapeTimeout: text,
  relabelings: any,
  metricRelabelings: any,
});
const monitored = fields({ matchNames: list(text) });

/** `kind.group/version`, and the fields of its spec. */
const kinds: Readonly<Record<string, Schema>> = {
  'PodMonitor.monitoring.coreos.com/v1': fields({
    namespaceSelector: monitored,
    selector,
    podMetricsEndpoints: list(endpoint),
  }),
  'ServiceMonitor.monitoring.coreos.com/v1': fields({
    namespaceSelector: monitored,
    selector,
    endpoints: list(endpoint),
  }),
  'PrometheusRule.monitoring.coreos.com/v1': fields({
    groups: list(
      fields({
        name: text,
        rules: list(
          fields({
            alert: text,
            record: text,
            expr: text,
            for: text,
            labels: texts,
            annotations: texts,
          }),
        ),
      }),
    ),
  }),
  'PodMonitoring.monitoring.googleapis.com/v1': fields({ selector, endpoints: list(endpoint) }),
  'ScaledObject.keda.sh/v1alpha1': fields({
    scaleTargetRef: fields({ apiVersion: text, kind: text, name: text }),
    minReplicaCount: number,
    maxReplicaCount: number,
    fallback: fields({ failureThreshold: number, replicas: number }),
    advanced: any,
    triggers: list(
      fields({ type: text, metricType: text, metadata: texts, authenticationRef: any }),
    ),
  }),
  'HTTPRoute.gateway.networking.k8s.io/v1': fields({
    parentRefs: list(fields({ name: text, namespace: text, sectionName: text })),
    hostnames: list(text),
    rules: list(
      fields({
        matches: list(fields({ path: fields({ type: text, value: text }) })),
        filters: any,
        backendRefs: list(fields({ name: text, port: number })),
      }),
    ),
  }),
  'BackendTrafficPolicy.gateway.envoyproxy.io/v1alpha1': fields({
    targetRefs: list(target),
    timeout: fields({ http: fields({ connectionIdleTimeout: text, requestTimeout: text }) }),
  }),
  'HealthCheckPolicy.networking.gke.io/v1': fields({
    targetRef: target,
    default: fields({
      checkIntervalSec: number,
      timeoutSec: number,
      unhealthyThreshold: number,
      config: fields({
        type: text,
        httpHealthCheck: fields({ portSpecification: text, port: number, requestPath: text }),
      }),
    }),
  }),
  'Application.argoproj.io/v1alpha1': fields({
    project: text,
    source: fields({
      repoURL: text,
      targetRevision: text,
      path: text,
      helm: fields({ releaseName: text, valueFiles: list(text) }),
    }),
    destination: fields({ server: text, namespace: text }),
    ignoreDifferences: list(fields({ group: text, kind: text, jsonPointers: list(text) })),
    syncPolicy: fields({
      automated: fields({ prune: flag, selfHeal: flag }),
      syncOptions: list(text),
    }),
  }),
};

/** One definition for each, as objects to create. */
export const foreignKinds = Object.entries(kinds).map(([name, spec]) => {
  const [, kind = '', group = '', version = ''] = /^(\w+)\.(.+)\/(.+)$/.exec(name) ?? [];
  const plural = `${kind.toLowerCase().replace(/y$/, 'ie')}s`;
  const apiApproved = { 'api-approved.kubernetes.io': 'unapproved, a stand-in of tests' };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.${group}`, annotations: apiApproved },
    spec: {
      group,
      names: { kind, plural, singular: kind.toLowerCase() },
      scope: 'Namespaced',
      versions: [
        {
          name: version,
          served: true,
          storage: true,
          schema: { openAPIV3Schema: fields({ spec }) },
        },
      ],
    },
  };
});
