/**
 * Which blocks of commands in the pages `make e2e` runs as printed, and how a block is found by its
 * beginning.
 */
import { read } from '../support/pages.ts';

/** In the order of the page; blocks marked ```sh untested are left out. */
export const BLOCKS = {
  'docs/install.md': [
    'helm upgrade --install try ',
    'kubectl create namespace ',
    "printf 'password: '",
    'helm upgrade --install partner-ingest ',
    'kubectl --namespace partner-ingest exec ',
    'key=',
  ],
  'docs/upgrade.md': ['helm upgrade ', 'helm uninstall '],
  'docs/operations.md': [
    'partner-ingest() {',
    'partner-ingest keys new ',
    'partner-ingest partner list',
    'partner-ingest keys list ',
    'partner-ingest receipt keys ',
  ],
  'docs/restore.md': [
    'kubectl -n "$NS" get deploy -l ',
    'kubectl -n "$NS" get deploy "$NAME-processor"',
    'kubectl -n "$NS" scale deploy "$NAME-controller"',
    'partner-ingest erase --replay',
    'kubectl -n "$NS" scale deploy "$NAME-processor"',
    'keys=',
    'partner-ingest receipt missing ',
  ],
  'docs/runbooks/README.md': ['NS='],
  'docs/runbooks/incident-leaked-key.md': [
    'partner-ingest keys list ',
    'partner-ingest partner hold ',
    'partner-ingest keys new ',
    'partner-ingest find ',
    'partner-ingest close ',
    'metrics ',
    'kubectl ',
    'partner-ingest partner holds',
  ],
} as const;
export type WalkedPage = keyof typeof BLOCKS;

export function blocksOf(page: WalkedPage): string[] {
  return [...read(page).matchAll(/^```sh\n([^]*?)\n```$/gm)].map(([, block = '']) => block);
}

/** Finds the one block of `page` with this beginning. */
export function blockOf<Page extends WalkedPage>(
  page: Page,
  beginning: (typeof BLOCKS)[Page][number],
): string {
  const [block, another] = blocksOf(page).filter((text) => text.startsWith(beginning));
  if (block === undefined || another !== undefined)
    throw new Error(`not one block of ${page} begins ${beginning}`);
  return block;
}
