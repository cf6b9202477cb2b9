/** The contract as an OpenAPI 3.1 document: `openapi.yaml` with the settings of this process. */
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { bodyFields } from '../application/fields.ts';

interface OpenApiSettings {
  readonly rateLimitMax: number;
  readonly rateLimitWindowSeconds: number;
  readonly statusEndpoint: boolean;
}

interface Response {
  readonly headers: Record<string, object>;
  readonly content: Record<string, { readonly examples?: Record<string, { summary: string }> }>;
  links?: object;
}

interface Operation {
  readonly responses: Record<string, Response>;
}

/** The parts that are changed here. */
interface OpenApiDocument {
  tags: readonly { readonly name: string }[];
  readonly paths: Record<string, Partial<Record<'get' | 'post', Operation>>>;
  readonly components: Readonly<Record<'headers' | 'schemas', Record<string, object>>>;
}

/** Completed by the table of fields. */
interface FieldSchemas {
  readonly Application: object;
  readonly Reason: { readonly properties: { readonly field: object } };
}

export function openApiDocument(settings: OpenApiSettings): OpenApiDocument {
  const text = readFileSync(new URL('openapi.yaml', import.meta.url), 'utf8')
    .replaceAll('$RATE_LIMIT_MAX', `${settings.rateLimitMax}`)
    .replaceAll('$RATE_LIMIT_WINDOW_SECONDS', `${settings.rateLimitWindowSeconds}`);
  const document = parse(text, { merge: true }) as OpenApiDocument;
  const fields = Object.values(bodyFields);
  const { Application, Reason } = document.components.schemas as unknown as FieldSchemas;
  Object.assign(Application, {
    properties: Object.fromEntries(
      fields.map(({ name, sample, schema }) => [
        name,
        { type: 'string', ...schema, examples: [sample] },
      ]),
    ),
    required: fields.map(({ name }) => name),
  });
  Object.assign(Reason.properties.field, { enum: fields.map(({ name }) => name) });
  for (const operation of Object.values(document.paths).flatMap((path) => Object.values(path)))
    describeErrors(operation);
  if (!settings.statusEndpoint) removeLookUps(document);
  return document;
}

/** Errors are described by what their examples say. */
function describeErrors({ responses }: Operation): void {
  for (const [status, response] of Object.entries(responses)) {
    const examples = Object.values(response.content['application/json']?.examples ?? {});
    if (examples.length === 0) continue;
    const description = examples.map(({ summary }) => summary).join('\n\n');
    responses[status] = { description, ...response } as Response;
  }
}

function removeLookUps(document: OpenApiDocument): void {
  const { paths, components } = document;
  delete paths['/capital/ingest/{request_id}'];
  delete paths['/capital/submissions'];
  document.tags = document.tags.filter(({ name }) => name !== 'Look-ups');
  for (const name of ['State', 'Reason', 'Entry', 'Status', 'Submissions'])
    delete components.schemas[name];
  for (const name of ['Location', 'PreferenceApplied', 'CacheControl'])
    delete components.headers[name];
  for (const response of Object.values(paths['/capital/ingest']!.post!.responses)) {
    delete response.headers['Location'];
    delete response.links;
  }
}
