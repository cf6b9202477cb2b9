/** An OTLP/HTTP collector that keeps spans and prints a trace as a tree. */
import { createServer } from 'node:http';
import { text as readText } from 'node:stream/consumers';
import { listen } from './listen.ts';

export type ReceivedSpan = ReturnType<typeof spansOf>[number];

export async function startOtlpReceiver() {
  const [spans, texts]: [ReceivedSpan[], string[]] = [[], []];
  const server = createServer((request, response) => {
    void readText(request).then((text) => {
      const type = request.headers['content-type'];
      texts.push(`${request.url} ${type}\n${text}`);
      if (type === 'application/json') spans.push(...spansOf(JSON.parse(text) as ExportRequest));
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
  });
  const port = await listen(server);
  return {
    /** The environment of a process that sends its spans here at once. */
    environment: {
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}`,
      OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
      OTEL_BSP_SCHEDULE_DELAY: '50',
    },
    text: () => texts.join('\n'),
    ofTrace: (traceId: string) => spans.filter((span) => span.traceId === traceId),
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

interface ExportRequest {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly KeyValue[] };
    readonly scopeSpans: readonly { readonly spans: readonly OtlpSpan[] }[];
  }[];
}
interface KeyValue {
  readonly key: string;
  readonly value: Readonly<Record<string, unknown>>;
}
interface OtlpSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly attributes: readonly KeyValue[];
  readonly links?: readonly { readonly traceId: string; readonly spanId: string }[];
  readonly status?: { readonly code?: number };
}

const KINDS = ['unspecified', 'internal', 'server', 'client', 'producer', 'consumer'];
const FAILED = 2;

function spansOf({ resourceSpans }: ExportRequest) {
  return resourceSpans.flatMap(({ resource, scopeSpans }) => {
    const service = String(valuesOf(resource.attributes)['service.name']);
    return scopeSpans.flatMap(({ spans }) =>
      spans.map((span) => ({
        traceId: span.traceId,
        spanId: span.spanId,
        parentSpanId: span.parentSpanId,
        name: span.name,
        kind: KINDS[span.kind] ?? String(span.kind),
        service,
        attributes: valuesOf(span.attributes),
        links: (span.links ?? []).map(({ traceId, spanId }) => ({ traceId, spanId })),
        startMs: milliseconds(span.startTimeUnixNano),
        failed: span.status?.code === FAILED,
      })),
    );
  });
}

const milliseconds = (nanoseconds: string): number => Number(BigInt(nanoseconds) / 1_000n) / 1_000;

function valuesOf(attributes: readonly KeyValue[]): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
}

/** Starts are whole milliseconds, so two may be equal. */
const leadsTo = (one: ReceivedSpan, other: ReceivedSpan): boolean =>
  other.links.some(({ spanId }) => spanId === one.spanId);

/** Attributes that a line of the tree shows. */
const TOLD: Readonly<Record<string, string>> = {
  status: 'http.response.status_code',
  batch: 'db.operation.batch.size',
  messages: 'messaging.batch.message_count',
  attempt: 'partner_ingest.attempt',
  account: 'partner_ingest.account',
  state: 'partner_ingest.state',
  mail: 'partner_ingest.mail',
  error: 'error.type',
};

/** The trace as a tree, one span a line, children by start. */
export function printTrace(spans: readonly ReceivedSpan[]): string {
  const byId = new Map(spans.map((span) => [span.spanId, span]));
  const roots = spans.filter(
    ({ parentSpanId }) => parentSpanId === undefined || !byId.has(parentSpanId),
  );
  const lines: string[] = [];
  const print = (span: ReceivedSpan, first: string, rest: string): void => {
    const told = Object.entries(TOLD)
      .filter(([, attribute]) => span.attributes[attribute] !== undefined)
      .map(([label, attribute]) => `${label}=${String(span.attributes[attribute])}`);
    const links = span.links.map(({ spanId }) => `← ${byId.get(spanId)?.name ?? 'another trace'}`);
    const where = `(${span.service.replace('partner-ingest-', '')}, ${span.kind}${span.failed ? ', failed' : ''})`;
    lines.push([`${first}${span.name}`, where, ...told, ...links].join(' '));
    const children = spans
      .filter(({ parentSpanId }) => parentSpanId === span.spanId)
      .toSorted(
        (one, other) =>
          one.startMs - other.startMs || Number(leadsTo(other, one)) - Number(leadsTo(one, other)),
      );
    for (const [index, child] of children.entries()) {
      const last = index === children.length - 1;
      print(child, `${rest}${last ? '└─ ' : '├─ '}`, `${rest}${last ? '   ' : '│  '}`);
    }
  };
  for (const root of roots) print(root, '', '');
  return lines.join('\n');
}
