/** What Grafana does to a query before it asks Prometheus: fills in its variables. */

export interface GrafanaSettings {
  readonly namespace: string;
  /** Length of `$__rate_interval`: at least four scrapes. */
  readonly rateSeconds: number;
  /** Length of `$__range`: the time shown. */
  readonly rangeSeconds: number;
}

export function filledIn(query: string, settings: GrafanaSettings): string {
  return query
    .replaceAll('$__rate_interval', `${settings.rateSeconds}s`)
    .replaceAll('$__range', `${settings.rangeSeconds}s`)
    .replaceAll('$namespace', settings.namespace)
    .replaceAll('$slo', '99.9')
    .replaceAll('$pod', '.*');
}
