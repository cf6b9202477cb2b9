/**
 * Traces through OpenTelemetry's API, which does nothing until an SDK is started. Libraries are not
 * patched, so a span contains only what our code puts into it: never personal data or keys.
 */
import {
  ROOT_CONTEXT,
  SpanStatusCode,
  TraceFlags,
  context,
  diag,
  DiagLogLevel,
  INVALID_SPAN_CONTEXT,
  isSpanContextValid,
  trace,
  type Context,
  type Link,
  type Span,
  type SpanContext,
  type SpanOptions,
} from '@opentelemetry/api';
import type { Probe, Fault } from './fault.ts';
import { contactFault } from './contact-failure.ts';
import { withDeadline } from './deadline.ts';
import type { Logger } from './log.ts';
import { saidBy } from './server-words.ts';

export interface NamedSpan extends SpanOptions {
  readonly name: string;
  /** The active span by default. */
  readonly parent?: Context;
}

const tracer = trace.getTracer('partner-ingest');
let tracing = false;

/** Without it, a span has no trace of its own. */
export const isTracing = (): boolean => tracing;
const NO_SPAN = trace.wrapSpanContext(INVALID_SPAN_CONTEXT);

/** The caller must end the span. */
export function startSpan({ name, parent, ...options }: NamedSpan): Span {
  return tracer.startSpan(name, options, parent);
}

/** Spans that begin within `work` are its children. An error marks it and is rethrown. */
export function inSpan<T>(
  { name, parent = context.active(), ...options }: NamedSpan,
  work: (span: Span) => Promise<T>,
): Promise<T> {
  if (!tracing) return work(NO_SPAN);
  return tracer.startActiveSpan(name, options, parent, (span) => ending([span], () => work(span)));
}

/**
 * One step in several traces: a span for each that is sampled. `work` takes the traceparent of each
 * span, or else of its parent. An error marks the spans and is rethrown.
 */
export function inSpans<T>(
  options: NamedSpan,
  parents: readonly (string | undefined)[],
  work: (traceparents: readonly (string | undefined)[]) => Promise<T>,
): Promise<T> {
  if (!tracing || !parents.some(isSampled)) return work(parents);
  const spans = parents.map((parent) =>
    isSampled(parent) ? startSpan({ ...options, parent: contextOf(parent) }) : undefined,
  );
  return ending(spans, () =>
    work(spans.map((span, index) => (span ? traceparentOf(span) : parents[index]))),
  );
}

async function ending<T>(spans: readonly (Span | undefined)[], work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    for (const span of spans) if (span !== undefined) failSpan(span, errorTypeOf(error));
    throw error;
  } finally {
    for (const span of spans) span?.end();
  }
}

/** Takes a class or a code, because a message could quote data. */
export function failSpan(span: Span, errorType: string): void {
  span.setAttribute('error.type', errorType).setStatus({ code: SpanStatusCode.ERROR });
}

/** OpenTelemetry's convention: the code, else the class. */
export function errorTypeOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error;
  const { code } = error as { code?: unknown };
  return typeof code === 'string' || typeof code === 'number' ? String(code) : error.name;
}

/** W3C Trace Context, version 00; later versions begin with its fields. */
const TRACEPARENT =
  /^(?:00(?!.{54})|(?!00|ff)[0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/;

function spanContextOf(traceparent: unknown): SpanContext | undefined {
  if (typeof traceparent !== 'string') return undefined;
  const [, traceId, spanId = '', flags = ''] = TRACEPARENT.exec(traceparent) ?? [];
  if (traceId === undefined) return undefined;
  const traceFlags = Number.parseInt(flags, 16) & TraceFlags.SAMPLED;
  return { traceId, spanId, traceFlags, isRemote: true };
}

const isSampled = (traceparent: string | undefined): boolean =>
  spanContextOf(traceparent)?.traceFlags === TraceFlags.SAMPLED;

/** Continues a stored or received traceparent's trace, else begins a new one. */
export function contextOf(traceparent: unknown): Context {
  const parent = spanContextOf(traceparent);
  return parent === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, parent);
}

export function linksTo(traceparent: string | undefined): Link[] {
  const linked = spanContextOf(traceparent);
  return linked === undefined ? [] : [{ context: linked }];
}

/** Stored and passed on, so that other processes continue the trace. Undefined without a trace. */
export function traceparentOf(span: Span | undefined): string | undefined {
  const spanContext = span?.spanContext();
  if (spanContext === undefined || !isSpanContextValid(spanContext)) return undefined;
  const { traceId, spanId, traceFlags } = spanContext;
  return `00-${traceId}-${spanId}-0${traceFlags & TraceFlags.SAMPLED}`;
}

export function traceFields(traceparent: string | undefined): { readonly trace_id?: string } {
  const traceId = spanContextOf(traceparent)?.traceId;
  return traceId === undefined ? {} : { trace_id: traceId };
}

/** A collector that is away must not delay a drain; the SDK would take 8 s. */
const CLOSE_MS = 2_000;

/**
 * The SDK reads the standard `OTEL_*` variables, and drops spans beyond its buffer. Call it once.
 */
export async function startTracing(
  serviceName: string,
  log: Logger,
): Promise<{ readonly warnings: Probe; close(): Promise<void> }> {
  const { NodeSDK } = await import('@opentelemetry/sdk-node');
  // Without these the SDK would also export metrics and logs.
  const sdk = new NodeSDK({ serviceName, metricReaders: [], logRecordProcessors: [] });
  const { note, warnings } = complaints(log);
  diag.setLogger(
    { error: note, warn: note, info: () => {}, debug: () => {}, verbose: () => {} },
    // With OTEL_LOG_LEVEL the SDK installs a plain-text logger; our lines are JSON.
    { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true },
  );
  sdk.start();
  tracing = true;
  return {
    warnings,
    close: () => withDeadline(sdk.shutdown(), CLOSE_MS, 'sending the last spans'),
  };
}

/** If the collector is away, every export fails; one line is logged in this time. */
const COMPLAINT_MS = 60_000;

const COLLECTOR = {
  name: 'OpenTelemetry collector',
  setting: 'OTEL_EXPORTER_OTLP_ENDPOINT',
  rights: 'OTEL_EXPORTER_OTLP_HEADERS',
};

function complaints(log: Logger) {
  let loggedAt = -Infinity;
  let untold = 0;
  let last = { at: -Infinity, fault: { code: 'traces_incomplete', words: '' } as Fault };
  return {
    /** The SDK does not report success, so a warning ends after a minute without a failure. */
    warnings: () => (performance.now() - last.at < COMPLAINT_MS ? [last.fault] : []),
    note: (words: string): void => {
      const at = performance.now();
      // A failed export is reported as the JSON of its error, which may quote the collector's
      // answer.
      const error: unknown = words[0] === '{' ? { message: '', ...JSON.parse(words) } : undefined;
      const fault =
        error === undefined ? { code: 'traces_incomplete', words } : contactFault(COLLECTOR, error);
      last = { at, fault };
      untold += 1;
      if (at - loggedAt < COMPLAINT_MS) return;
      const said = error === undefined ? {} : { said: saidBy(error) };
      const fields = { reason: fault.words, ...said, untold: untold - 1 };
      log.warn(fields, 'traces are incomplete; requests are not affected');
      loggedAt = at;
      untold = 0;
    },
  };
}
