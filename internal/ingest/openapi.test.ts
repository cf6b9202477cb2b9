/** The OpenAPI document passes a linter and has the same errors as the code and the README. */
import { expect, test } from '@jest/globals';
import { createConfig, lintFromString } from '@redocly/openapi-core';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { errors, tooManyRequests } from './errors.ts';
import { openApiDocument } from './openapi.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const settings = { rateLimitMax: 300, rateLimitWindowSeconds: 60, statusEndpoint: true };
const document = openApiDocument(settings);

interface Operation {
  readonly responses: Record<
    string,
    { content: { 'application/json': { examples?: Record<string, Example> } } }
  >;
}
interface Example {
  readonly value: { readonly error: string };
}

/** Status code and sentence of every error in the code. */
const known = [
  ...Object.values(errors),
  {
    status: 429,
    error: tooManyRequests({ amount: '300', windowSeconds: 60, whose: 'one address' }, 60),
  },
];
const told = (error: { readonly status: number; readonly error: string }): string =>
  `${error.status} ${error.error}`;
const set = (texts: readonly string[]): string[] => [...new Set(texts)].toSorted();

function documentedErrors(): string[] {
  const paths = Object.values(document['paths'] as Record<string, Record<string, Operation>>);
  return paths
    .flatMap((path) => Object.values(path))
    .flatMap(({ responses }) =>
      Object.entries(responses).flatMap(([status, { content }]) =>
        Object.values(content['application/json'].examples ?? {}).map(
          ({ value }) => `${status} ${value.error}`,
        ),
      ),
    );
}

test.each([true, false])(
  'a linter finds no fault in the document (look-ups: %s)',
  async (statusEndpoint) => {
    const faults = await lintFromString({
      source: JSON.stringify(openApiDocument({ ...settings, statusEndpoint })),
      absoluteRef: 'openapi.json',
      config: await createConfig({ extends: ['recommended-strict'] }),
    });
    expect(
      faults.map(({ ruleId, message, location }) => [ruleId, message, location[0]?.pointer]),
    ).toEqual([]);
  },
);

test('the document lists exactly the errors of the code', () => {
  expect(set(documentedErrors())).toEqual(set(known.map(told)));
});

test('the contract page lists exactly the errors of the code', () => {
  const page = readFileSync(join(ROOT, 'docs/contract.md'), 'utf8');
  const rows = [...page.matchAll(/:\s+(\d{3})\s+`\{"error":"([^"]+)"/g)].map(
    ([, status, error]) => `${status} ${error}`,
  );
  expect(set(rows)).toEqual(
    set(known.map(told)).map((error) => error.replace(/^(429 [^:]+: ).*/, '$1…')),
  );
});
