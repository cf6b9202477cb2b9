/** Clients generated from the OpenAPI document compile, strictly, and are used by their types. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { afterAll, expect, test } from '@jest/globals';
import { openApiDocument } from '../../internal/ingest/contract.ts';
import { endOf } from '../../tools/program.ts';
import { clients, findGenerators } from '../support/clients.ts';
import { HANG_MS } from '../support/wait.ts';

const tools = await findGenerators();
const folders: string[] = [];
afterAll(() => folders.forEach((folder) => rmSync(folder, { recursive: true })));

/** Each submits, reads a state and its reasons, and names a state. */
const uses: Readonly<Record<string, string>> = {
  TypeScript: `import type { components, paths } from './schema';
type Entry = components['schemas']['Entry'];
type Answer = paths['/capital/ingest']['post']['responses'][202]['content']['application/json'];
export const body: components['schemas']['Application'] = {
  email: 'ada@example.com',
  business_name: 'Ada Ltd',
  ein: '123456789',
};
export const idOf = (answer: Answer): string => answer.data.request_id;
export const why = ({ reasons }: Entry): string[] => reasons.map(({ code }) => code);
export const query: paths['/capital/submissions']['get']['parameters']['query'] = {
  since: '2026-11-27T09:30:00Z',
};
const states = { COMPLETED: 'completed', UNKNOWN: 'unknown' } as const;
export const state: Entry['state'] = states.STATE;
`,
  Python: `from ingest.api.look_ups import list_submissions, look_up_status
from ingest.api.submissions import submit_application
from ingest.client import AuthenticatedClient
from ingest.models import Accepted, Application, State, Status, Submissions

client = AuthenticatedClient("https://ingest.example/api/v1", "key")
body = Application(email="ada@example.com", business_name="Ada Ltd", ein="123456789")


def submit() -> str:
    answer = submit_application.sync(client=client, body=body)
    return answer.data.request_id if isinstance(answer, Accepted) else "refused"


def why(request_id: str) -> list[str]:
    status = look_up_status.sync(request_id, client=client)
    return [reason.code.value for reason in status.data.reasons] if isinstance(status, Status) else []


def page(cursor: str) -> int:
    listed = list_submissions.sync(client=client, cursor=cursor, state=State.STATE)
    return len(listed.data.submissions) if isinstance(listed, Submissions) else 0
`,
  Java: `import example.ingest.*;
import java.util.List;

class Use {
  static int page(String cursor) throws ApiException {
    String state = State.STATE.getValue();
    return new LookUpsApi().listSubmissions(null, null, state, cursor, null).getData()
        .getSubmissions().size();
  }

  static String submit() throws ApiException {
    Application application = new Application()
        .email("ada@example.com").businessName("Ada Ltd").ein("123456789");
    return new SubmissionsApi().submitApplication(application, null, null).getData().getRequestId();
  }

  static List<String> why(String requestId) throws ApiException {
    return new LookUpsApi().lookUpStatus(requestId, null).getData().getReasons().stream()
        .map(reason -> reason.getCode().getValue()).toList();
  }
}
`,
};
/** The generator's own, of any document of OpenAPI 3.1. */
const KNOWN = /OpenAPI 3\.1 support is still in beta|Failed to get the schema name: null/;

async function compile(language: string, use: string) {
  const { file, commands } = clients[language]!;
  const folder = mkdtempSync(join(tmpdir(), 'client-'));
  folders.push(folder);
  const document = openApiDocument({
    rateLimitMax: 300,
    rateLimitWindowSeconds: 60,
    statusEndpoint: true,
  });
  writeFileSync(join(folder, 'openapi.json'), JSON.stringify(document));
  mkdirSync(dirname(join(folder, file)), { recursive: true });
  writeFileSync(join(folder, file), use);
  const env = {
    ...process.env,
    PATH: [join(tools.others, 'python/bin'), process.env['PATH']].join(delimiter),
  };
  const said: string[] = [];
  for (const [program = '', ...args] of commands(tools, folder)) {
    const { code, out, err } = await endOf(program, args, { cwd: folder, env });
    said.push(out + err);
    if (code !== 0) return { code, said: said.join('\n') };
  }
  return { code: 0, said: said.join('\n') };
}

const cases = Object.entries(uses).flatMap(([language, use]) =>
  ['COMPLETED', 'UNKNOWN'].map((state) => [language, state, use] as const),
);
test.each(cases)(
  'a client in %s compiles without a warning unless a state is unknown: %s',
  async (language, state, use) => {
    const { code, said } = await compile(language, use.replaceAll('.STATE', `.${state}`));
    expect({ ok: code === 0, said }).toEqual({ ok: state === 'COMPLETED', said });
    const warnings = said.split('\n').filter((line) => /warn|⚠/i.test(line) && !KNOWN.test(line));
    expect(warnings).toEqual([]);
    if (code !== 0) expect(said).toMatch(/unknown/i);
  },
  HANG_MS * 3,
);
