/** The dashboard of the chart. */
import { read } from './pages.ts';

/** A folded row holds its panels. */
interface GrafanaPanel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly description?: string;
  readonly fieldConfig?: { readonly defaults: { readonly unit?: string } };
  readonly targets?: readonly { readonly expr: string }[];
  readonly panels?: readonly GrafanaPanel[];
  readonly links?: readonly { readonly url: string }[];
}

const board = JSON.parse(read('charts/partner-ingest/dashboards/partner-ingest.json')) as {
  readonly panels: readonly GrafanaPanel[];
};

/** All panels with data, from top to bottom; queries have Grafana's variables. */
export const dashboardPanels = board.panels
  .flatMap((panel) => [panel, ...(panel.panels ?? [])])
  .filter(({ type }) => type !== 'row')
  .map(({ id, type, title, description = '', fieldConfig, targets = [], links = [] }) => ({
    id,
    type,
    title,
    description,
    unit: fieldConfig?.defaults.unit ?? '',
    queries: targets.map(({ expr }) => expr),
    leadsTo: links.map(({ url }) => Number(/viewPanel=(\d+)/.exec(url)?.[1]))[0],
  }));
