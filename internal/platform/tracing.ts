/**
 * Spans around what the service does; without tracing, OpenTelemetry's SDK is not loaded.
 *
 * Libraries are not patched, so a span contains only what our code puts into it.
 */
import type * as Api from '@opentelemetry/api';
import type { Attributes } from '@opentelemetry/api';
import type { Probe } from './admin-server.ts';
import { setEnvironment } from './config.ts';
import { contactReason } from './contact-failure.ts';
import { withDeadline } from './deadline.ts';
import { defined } from './defined.ts';
import type { Logger } from './log.ts';

export interface SpanOptions {
  readonly name: string;
  readonly kind: keyof typeof Api.SpanKind;
  /** Never personal data or keys. */
  readonly attributes?: Attributes;
  /** `undefined` begins a new trace; if absent, the current span is the parent. */
  readonly parent?: string | undefined;
  readonly link?: string | undefined;
  readonly startedAt?: Date;
}

export interface Span {
  /** Stored and passed on, so that other processes continue the trace. */
  readonly traceparent: string;
  set(attributes: Attributes): void;
  /** Takes a class or a code, because a message could quote data. */
  fail(errorType: string): void;
  end(): void;
  /** Spans that begin within `work` are parts of this one. */
  around<T>(work: () => T): T;
}

interface OpenTelemetry {
  readonly api: typeof Api;
  readonly tracer: Api.Tracer;
}
let otel: OpenTelemetry | undefined;

/** Callers ask before they prepare what only a span needs. */
export function tracing(): boolean {
  return otel !== undefined;
}

/** The caller ends the span. */
export function startSpan(options: SpanOptions): Span | undefined {
  return otel === undefined ? undefined : open(otel, options);
}

/** An error marks the span and is rethrown. */
export async function inSpan<T>(
  options: SpanOptions,
  work: (span?: Span) => Promise<T>,
): Promise<T> {
  const span = startSpan(options);
  return span === undefined ? work() : ending([span], () => span.around(() => work(span)));
}

/**
 * One step in several traces: a span for each that is sampled. `work` takes the traceparent of each
 * span, or else of its parent. An error marks the spans and is rethrown.
 */
export async function inSpans<T>(
  options: SpanOptions,
  parents: readonly (string | undefined)[],
  work: (traceparents: readonly (string | undefined)[]) => Promise<T>,
): Promise<T> {
  if (otel === undefined) return work(parents);
  const spans = parents.map((parent) =>
    isSampled(parent) ? startSpan({ ...options, parent }) : undefined,
  );
  return ending(spans, () => work(spans.map((span, index) => span?.traceparent ?? parents[index])));
}

async function ending<T>(spans: readonly (Span | undefined)[], work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    for (const span of spans) span?.fail(errorTypeOf(error));
    throw error;
  } finally {
    for (const span of spans) span?.end();
  }
}

function open({ api, tracer }: OpenTelemetry, options: SpanOptions): Span {
  const { context, trace, ROOT_CONTEXT } = api;
  const link = spanContextOf(options.link);
  const parent = spanContextOf(options.parent);
  const remote = parent === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, parent);
  const span = tracer.startSpan(
    options.name,
    {
      kind: api.SpanKind[options.kind],
      ...defined({ attributes: options.attributes, startTime: options.startedAt }),
      links: link === undefined ? [] : [{ context: link }],
    },
    'parent' in options ? remote : context.active(),
  );
  const { traceId, spanId, traceFlags } = span.spanContext();
  return {
    traceparent: `00-${traceId}-${spanId}-0${traceFlags & SAMPLED}`,
    set: (attributes) => void span.setAttributes(attributes),
    fail: (errorType) =>
      void span.setAttribute('error.type', errorType).setStatus({ code: api.SpanStatusCode.ERROR }),
    end: () => span.end(),
    around: (work) => context.with(trace.setSpan(context.active(), span), work),
  };
}

/** The conventions ask for the code, or else the class. */
export function errorTypeOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error;
  const { code } = error as { code?: unknown };
  return typeof code === 'string' || typeof code === 'number' ? String(code) : error.name;
}

/** W3C Trace Context, version 00. */
const TRACEPARENT = /^00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})$/;
const LATER = /^(?!00|ff)[0-9a-f]{2}(-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})(?:-.*)?$/;
const SAMPLED = 1;

/** As version 00, whose fields a later version begins with; undefined if it is none. */
export function readTraceparent(value: unknown): string | undefined {
  if (typeof value !== 'string') return undefined;
  const known = value.replace(LATER, '00$1');
  return TRACEPARENT.test(known) ? known : undefined;
}

function isSampled(traceparent: string | undefined): boolean {
  return spanContextOf(traceparent)?.traceFlags === SAMPLED;
}

function spanContextOf(traceparent: string | undefined): Api.SpanContext | undefined {
  const [, traceId, spanId = '', flags = ''] = TRACEPARENT.exec(traceparent ?? '') ?? [];
  if (traceId === undefined) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & SAMPLED, isRemote: true };
}

/** Also works while tracing is off. */
export function traceFields(traceparent: string | undefined): { readonly trace_id?: string } {
  const traceId = spanContextOf(traceparent)?.traceId;
  return traceId === undefined ? {} : { trace_id: traceId };
}

/** A collector that is away must not delay a drain; the SDK would take 8 s. */
const CLOSE_MS = 2_000;

/**
 * The SDK reads the standard `OTEL_*` variables, after `variables` have been set, and drops spans
 * beyond its buffer. Call it once.
 */
export async function startTracing(options: {
  readonly serviceName: string;
  readonly variables: Readonly<Record<string, string>>;
  readonly log: Logger;
}): Promise<{ readonly warnings: Probe; close(): Promise<void> }> {
  setEnvironment(options.variables);
  const [api, { NodeSDK }] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/sdk-node'),
  ]);
  const sdk = new NodeSDK({
    serviceName: options.serviceName,
    // Without these the SDK would also export metrics and logs.
    metricReaders: [],
    logRecordProcessors: [],
  });
  const { take, warnings } = complaints(options.log);
  api.diag.setLogger(
    { error: take, warn: take, info: () => {}, debug: () => {}, verbose: () => {} },
    // With OTEL_LOG_LEVEL the SDK installs a plain-text logger; our lines are JSON.
    { logLevel: api.DiagLogLevel.WARN, suppressOverrideMessage: true },
  );
  sdk.start();
  otel = { api, tracer: api.trace.getTracer(options.serviceName) };
  return {
    warnings,
    close: () => withDeadline(sdk.shutdown(), CLOSE_MS, 'sending the last spans'),
  };
}

/** A collector that is away fails every export, so lines are limited to one per this time. */
const COMPLAINT_MS = 60_000;

const COLLECTOR = {
  name: 'OpenTelemetry collector',
  setting: 'OTEL_EXPORTER_OTLP_ENDPOINT',
  rights: 'OTEL_EXPORTER_OTLP_HEADERS',
};

function complaints(log: Logger) {
  let loggedAt = -Infinity;
  let untold = 0;
  let last = { at: -Infinity, reason: '' };
  return {
    /** The SDK does not report success, so a warning ends after a minute without a failure. */
    warnings: () => (performance.now() - last.at < COMPLAINT_MS ? [last.reason] : []),
    take: (message: string): void => {
      const at = performance.now();
      // A failed export is reported as the JSON of its error, which may quote the collector's answer.
      const failed = message.startsWith('{');
      last = {
        at,
        reason: failed
          ? contactReason(COLLECTOR, { message: '', ...JSON.parse(message) })
          : message,
      };
      untold += 1;
      if (at - loggedAt < COMPLAINT_MS) return;
      const fields = { reason: last.reason, untold: untold - 1 };
      log.warn(fields, 'traces are incomplete; requests are not affected');
      loggedAt = at;
      untold = 0;
    },
  };
}
