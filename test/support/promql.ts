/**
 * Reads metric names and label matchers out of PromQL: enough to compare dashboards and rules with
 * the definitions.
 */

export interface Selector {
  /** Without the suffix of a histogram's parts. */
  readonly metric: string;
  readonly matchers: readonly {
    readonly label: string;
    readonly operator: string;
    readonly value: string;
  }[];
}

const SELECTOR = /\b((?:partner_ingest|nodejs|process)_[a-z0-9_]+)\b(?!:)(?:\{([^}]*)\})?/g;
const MATCHER = /(\w+)(=~|!~|!=|=)"([^"]*)"/g;

/** Every selector in `expression`; those of recording rules (with colons) are left out. */
export function selectorsIn(expression: string): Selector[] {
  return [...expression.matchAll(SELECTOR)].map(([, name = '', matchers = '']) => ({
    metric: name.replace(/_(bucket|count)$/, '').replace(/_sum$/, ''),
    matchers: [...matchers.matchAll(MATCHER)].map(([, label = '', operator = '', value = '']) => ({
      label,
      operator,
      value,
    })),
  }));
}
