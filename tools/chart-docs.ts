/** Makes the chart's values.schema.json from the comments in values.yaml. */
import { readFileSync } from 'node:fs';
import { emailRule } from '../internal/application/fields.ts';
import { clientNameRule } from '../internal/application/fields.ts';
import {
  isMap,
  isScalar,
  isSeq,
  parse,
  parseDocument,
  type Node,
  type Pair,
  type YAMLMap,
} from 'yaml';
import { ROOT } from './root.ts';

const SCHEMA_LINE = /^\s*@schema\s+(.*)$/;
/** Rules of the code that a comment names, so that chart and settings take the same values. */
const rules: Readonly<Record<string, object>> = { email: emailRule, clientName: clientNameRule };
const byName = parse(readFileSync(`${ROOT}tools/chart-schema.yaml`, 'utf8'), {
  merge: true,
}) as Readonly<Record<string, object>>;
const DAYS = { minimum: 1, maximum: 36_500 };
const PORTS = { items: { type: 'integer', minimum: 1, maximum: 65_535 } };
/** Maps in braces that have the keys of another one, by the end of their path. */
const alike: Readonly<Record<string, string>> = {
  mongodb: 'ingest.mongodb',
  podDisruptionBudget: 'ingest.podDisruptionBudget',
  serviceAccount: 'ingest.serviceAccount',
  receipts: 'ingest.mongodb',
  serviceMonitor: 'metrics.podMonitor',
};

/**
 * One value: where it is, what its comment says, its default, and what is in it where it is a map
 * of ours.
 */
export interface ChartValue {
  readonly path: readonly string[];
  readonly about: string;
  readonly schema: Readonly<Record<string, unknown>>;
  readonly fallback: unknown;
  readonly inside: readonly ChartValue[];
}

/**
 * The values in the order of the file. A map written in braces belongs to Kubernetes or to the
 * user, and is one value.
 */
export function chartValues(valuesYaml: string): readonly ChartValue[] {
  const { contents } = parseDocument(valuesYaml);
  if (!isMap(contents)) throw new Error('values.yaml is not a map');
  return valuesOf(contents, []);
}

function valuesOf(map: YAMLMap, parent: readonly string[]): ChartValue[] {
  return (map.items as Pair<Node, Node>[]).map(({ key, value }, index) => {
    // The comment above the first key of a map is kept with the map.
    const comment =
      key.commentBefore ?? (index === 0 && parent.length > 0 ? map.commentBefore : '') ?? '';
    const path = [...parent, String(key)];
    const behind = value?.comment ?? '';
    const [about, narrowed] = readComment(behind === '' ? comment : `${comment}\n${behind}`);
    const schema = { ...usualFor(String(key), value), ...narrowed };
    const ours = isMap(value) && value.flow !== true && value.items.length > 0;
    return {
      path,
      about,
      schema,
      fallback: plain(value),
      inside: ours ? valuesOf(value, path) : [],
    };
  });
}

/** What the name and the kind of a value say of its schema. */
function usualFor(name: string, value: Node | null): Readonly<Record<string, unknown>> {
  const like = alike[name];
  if (like !== undefined && isMap(value) && value.flow === true)
    return { $ref: `#/properties/${like.replaceAll('.', '/properties/')}` };
  if (name.endsWith('Days')) return DAYS;
  if (name.endsWith('Ports')) return PORTS;
  return { ...(isSeq(value) ? { items: { type: 'object' } } : {}), ...byName[name] };
}

function plain(value: Node | null): unknown {
  return isMap(value) || isSeq(value) || isScalar(value) ? (value.toJSON() as unknown) : undefined;
}

function readComment(comment: string): [string, Record<string, unknown>] {
  // A paragraph of its own, such as the one that opens the file, is not about the key.
  const lines = (
    comment
      .trim()
      .split(/\n\s*\n/)
      .at(-1) ?? ''
  ).split('\n');
  const schemas = lines.flatMap((line) => SCHEMA_LINE.exec(line)?.[1] ?? []);
  const about = lines.filter((line) => !SCHEMA_LINE.test(line)).map((line) => line.trim());
  return [
    about.join(' ').trim(),
    Object.assign({}, ...schemas.map((text) => parse(text) as object)),
  ];
}

/**
 * The JSON schema Helm checks values against: a key that is not in values.yaml is a fault, so
 * misspelt keys are found.
 */
export function chartSchema(valuesYaml: string): string {
  const schema = {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'Values of partner-ingest',
    type: 'object',
    additionalProperties: false,
    ...propertiesOf(chartValues(valuesYaml)),
  };
  // `ingest.pod` and its like may leave out what `pods` must have.
  const { required, ...definition } = schema.properties['pods'] as { required: string[] };
  schema.properties['pods'] = { allOf: [{ $ref: '#/definitions/pods' }, { required }] };
  return JSON.stringify({ ...schema, definitions: { pods: definition } });
}

/**
 * Helm takes a key out whose value is empty, as in `ingest:` with nothing behind it, and a template
 * would meet nothing: all are required but those that may be `null`.
 */
function propertiesOf(values: readonly ChartValue[]): {
  readonly required: readonly string[];
  readonly properties: Record<string, object>;
} {
  const nameOf = ({ path }: ChartValue): string => path.at(-1) ?? '';
  return {
    required: values.filter(({ schema }) => ![schema['type']].flat().includes('null')).map(nameOf),
    properties: Object.fromEntries(values.map((value) => [nameOf(value), schemaOf(value)])),
  };
}

function schemaOf({ about, schema, fallback, inside }: ChartValue): object {
  const description = about === '' ? {} : { description: about };
  const { rule } = schema;
  if (typeof rule === 'string') {
    const value = rules[rule];
    if (value === undefined) throw new Error(`values.yaml names an unknown rule: ${rule}`);
    // Where nothing is the default, nothing may be given.
    const optional = fallback === '' ? { anyOf: [{ maxLength: 0 }, value] } : value;
    return { ...description, type: 'string', default: fallback, ...optional };
  }
  if ('$ref' in schema) return { ...description, ...schema };
  if (inside.length === 0)
    return { ...description, type: typeOf(fallback), default: fallback, ...schema };
  return {
    ...description,
    type: 'object',
    additionalProperties: false,
    ...propertiesOf(inside),
    ...schema,
  };
}

function typeOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  if (typeof value === 'number') return Number.isInteger(value) ? 'integer' : 'number';
  return typeof value;
}
