/** The dashboard that the chart ships, as tests and pages look at it. */
import { read } from './pages.ts';

export interface BoardPanel {
  readonly title: string;
  readonly description: string;
  readonly unit: string;
  /** In PromQL, with Grafana's variables. */
  readonly queries: readonly string[];
}

/** A panel of Grafana's; a folded row holds its own. */
interface GrafanaPanel {
  readonly type: string;
  readonly title: string;
  readonly description?: string;
  readonly fieldConfig?: { readonly defaults: { readonly unit?: string } };
  readonly targets?: readonly { readonly expr: string }[];
  readonly panels?: readonly GrafanaPanel[];
}

const board = JSON.parse(read('charts/partner-ingest/dashboards/partner-ingest.json')) as {
  readonly panels: readonly GrafanaPanel[];
};

/** Every panel that shows something, from top to bottom. */
export const dashboardPanels: readonly BoardPanel[] = board.panels
  .flatMap((panel) => [panel, ...(panel.panels ?? [])])
  .filter(({ type }) => type !== 'row')
  .map(({ title, description = '', fieldConfig, targets = [] }) => ({
    title,
    description,
    unit: fieldConfig?.defaults.unit ?? '',
    queries: targets.map(({ expr }) => expr),
  }));
