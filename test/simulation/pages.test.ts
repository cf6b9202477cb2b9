/** The page of the console and the command say the same of every request of random histories. */
import { expect, test } from '@jest/globals';
import * as fc from 'fast-check';
import { AccountQueries } from '../../internal/account/account-store.ts';
import { ACCOUNTS, TEST_ACCOUNTS } from '../../internal/account/account.ts';
import type { Call, Report } from '../../internal/operators/cli/command.ts';
import { show } from '../../internal/operators/cli/queries.ts';
import looks from '../../internal/operators/console/looks.json' with { type: 'json' };
import { htmlOf } from '../../internal/operators/console/render.ts';
import { PARTNER_HOLDS, PartnerHolds } from '../../internal/partner/flags.ts';
import { SUBMISSIONS } from '../../internal/submission/submission.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import { lookUp } from '../../internal/operators/view/look-up.ts';
import { requestView } from '../../internal/operators/view/request.ts';
import { databaseOf, driverOf, type Wire } from './driver.ts';
import { MemoryCollection } from './memory-collection.ts';
import { play } from './history.ts';
import { plans } from './plan.ts';
import type { World } from './world.ts';

/* oxlint-disable node/no-process-env -- HISTORIES is a choice of the person who runs the tests */
const HISTORIES = Number(process.env['HISTORIES'] ?? 40);

/** The facts on which page and command must agree. */
interface Told {
  readonly state: string;
  readonly next: string;
  readonly timeline: readonly { readonly what: string }[];
  readonly commands: readonly { readonly what: string; readonly command: string }[];
  readonly others: readonly { readonly request_id: string }[];
  readonly reasons?: readonly { readonly code: string }[];
}

const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'" } as const;
const visible = (html: string): string =>
  html
    .replaceAll(/<[^>]*>/g, ' ')
    .replaceAll(/&(amp|lt|gt|quot|#39);/g, (_, name: keyof typeof ENTITIES) => ENTITIES[name]);
const spaced = (text: string): string => text.replaceAll(/\s+/g, ' ');

function readsOf(world: World) {
  const wire: Wire = (execute) => Promise.resolve(execute());
  const db = databaseOf({
    [SUBMISSIONS]: driverOf(world.requests, wire),
    [ACCOUNTS]: driverOf(world.accounts, wire),
    [TEST_ACCOUNTS]: driverOf(new MemoryCollection(), wire),
    [PARTNER_HOLDS]: driverOf(world.holds, wire),
  });
  const clock = { now: () => world.scheduler.date(), monotonicMs: () => 0 };
  const trail = {
    ofRequest: () => Promise.resolve([]),
    newest: () => Promise.resolve([]),
  };
  const reads = {
    submissions: new SupportQueries(db),
    accounts: new AccountQueries(db),
    holds: new PartnerHolds({ db, clock }),
    trail,
    aside: { of: () => Promise.resolve(new Map()), ids: () => Promise.resolve([]) },
  };
  return { reads, clock };
}

/** The page has words for states, and shows commands and the relay's words apart. */
function onPage(said: string): string[] {
  const parts = said
    .replace(/: "partner-ingest[^"]*"$/, '')
    .split(/ after [^,]*|, "|"$|: |, (?=\w+: )/);
  return parts.filter(Boolean);
}

const wordsOf = (one: string): string =>
  one in looks ? looks[one as keyof typeof looks][0]! : one;

async function commandSays(id: string, world: World): Promise<{ told: Told; text: string }> {
  const { reads, clock } = readsOf(world);
  const call = { positionals: [id], values: {}, stores: reads, clock } as unknown as Call;
  const { json, text } = (await show.run(call)) as Report;
  return { told: JSON.parse(JSON.stringify(json)) as Told, text };
}

async function pageSays(id: string, world: World): Promise<string> {
  const { reads, clock } = readsOf(world);
  const now = clock.now();
  const person = { name: 'somebody', nameFrom: 'console', role: 'viewer' } as const;
  const found = await lookUp(id, reads, now);
  if ('missing' in found) throw new Error(found.missing);
  const view = await requestView(found, reads, { now, reveal: false });
  return htmlOf('request', { person, oidc: false, now, csrf: '', title: id, reveal: false, view });
}

test(`page and command agree on all requests of ${HISTORIES} histories`, async () => {
  const seed = Date.now() % 2 ** 31;
  const seen = new Set<string>();
  let requests = 0;
  const compare = async (world: World): Promise<void> => {
    for (const { _id: id } of world.records()) {
      const { told, text } = await commandSays(id, world);
      const texts = {
        command: spaced(text),
        // Whole ids and the names of reasons stand in titles.
        page: spaced(
          visible(
            (await pageSays(id, world)).replaceAll(
              / title="(req_\w+|(?:\w+: )?\w+_\w+|\w+: \w+)"[^>]*>/g,
              '>$1 ',
            ),
          ),
        ),
      };
      const says = [
        told.state,
        told.next,
        ...told.timeline.map(({ what }) => what),
        ...told.commands.flatMap(({ what, command }) => [what, command]),
        ...told.others.map((other) => other.request_id),
        ...(told.reasons ?? []).map(({ code }) => code),
      ];
      // The state of a page says that an operator ended it.
      const page = says.filter((one) => one !== 'discarded').flatMap(onPage);
      const wanted = { command: says, page };
      for (const where of ['command', 'page'] as const)
        expect({
          seed,
          id,
          where,
          lacks: wanted[where].filter(
            (one) => ![one, wordsOf(one)].some((each) => texts[where].includes(spaced(each))),
          ),
        }).toEqual({ seed, id, where, lacks: [] });
      seen.add(told.state);
      requests += 1;
    }
  };
  for (const plan of fc.sample(plans, { seed, numRuns: HISTORIES }))
    await play(plan, { look: compare });
  expect(requests).toBeGreaterThan(HISTORIES);
  expect([...seen]).toEqual(expect.arrayContaining(['completed', 'rejected']));
}, 600_000);
