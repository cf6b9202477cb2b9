/** All mutants. */
import { alerts, chart } from './list/chart.ts';
import { rules } from './list/rules.ts';
import { stores } from './list/stores.ts';
import type { Mutant } from './mutant.ts';

export const mutants: readonly Mutant[] = [...rules, ...stores, ...alerts, ...chart];
