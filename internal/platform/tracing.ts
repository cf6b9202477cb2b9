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
  readonly links?: readonly (string | undefined)[];
  readonly startedAt?: Date;
}

export interface Span {
  /** Stored and passed on, so that other processes continue the trace. */
  readonly traceparent: string;
  set(attributes: Attributes): void;
  /** Takes a class or a code, because a message could quote data. */
  fail(errorType: string): void;
  end(): void;
}

/** One step in several traces: a span for each that is sampled. */
export interface Spans {
  /** A parent's own traceparent if it is not sampled. */
  readonly traceparents: readonly (string | undefined)[];
  fail(errorType: string): void;
  end(): void;
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
  return otel === undefined ? undefined : wrap(otel, open(otel, options));
}

export function startSpans(
  options: SpanOptions,
  parents: readonly (string | undefined)[],
): Spans | undefined {
  if (otel === undefined) return undefined;
  const started = otel;
  const spans = parents.map((parent) =>
    isSampled(parent) ? wrap(started, open(started, { ...options, parent })) : undefined,
  );
  return {
    traceparents: spans.map((span, index) => span?.traceparent ?? parents[index]),
    fail: (errorType) => {
      for (const span of spans) span?.fail(errorType);
    },
    end: () => {
      for (const span of spans) span?.end();
    },
  };
}

/** An error marks the span and is rethrown. */
export function inSpan<T>(options: SpanOptions, work: (span?: Span) => Promise<T>): Promise<T> {
  return otel === undefined ? work() : workInSpan(otel, options, work);
}

async function workInSpan<T>(
  started: OpenTelemetry,
  options: SpanOptions,
  work: (span: Span) => Promise<T>,
): Promise<T> {
  const { context, trace } = started.api;
  const opened = open(started, options);
  const span = wrap(started, opened);
  try {
    return await context.with(trace.setSpan(context.active(), opened), () => work(span));
  } catch (error) {
    span.fail(errorTypeOf(error));
    throw error;
  } finally {
    span.end();
  }
}

function open({ api, tracer }: OpenTelemetry, options: SpanOptions): Api.Span {
  const links = (options.links ?? []).map(spanContextOf).filter((context) => context !== undefined);
  return tracer.startSpan(
    options.name,
    {
      kind: api.SpanKind[options.kind],
      ...defined({ attributes: options.attributes, startTime: options.startedAt }),
      links: links.map((context) => ({ context })),
    },
    'parent' in options ? remoteContext(api, options.parent) : api.context.active(),
  );
}

function remoteContext(api: typeof Api, traceparent: string | undefined): Api.Context {
  const parent = spanContextOf(traceparent);
  return parent === undefined
    ? api.ROOT_CONTEXT
    : api.trace.setSpanContext(api.ROOT_CONTEXT, parent);
}

function wrap({ api }: OpenTelemetry, span: Api.Span): Span {
  const { traceId, spanId, traceFlags } = span.spanContext();
  return {
    traceparent: `00-${traceId}-${spanId}-0${traceFlags & SAMPLED}`,
    set: (attributes) => void span.setAttributes(attributes),
    fail: (errorType) =>
      void span.setAttribute('error.type', errorType).setStatus({ code: api.SpanStatusCode.ERROR }),
    end: () => span.end(),
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
const SAMPLED = 1;

export function isTraceparent(value: unknown): value is string {
  return typeof value === 'string' && TRACEPARENT.test(value);
}

/** Avoids parsing, because under load most requests are not sampled. */
function isSampled(traceparent: string | undefined): boolean {
  return (
    traceparent !== undefined && (Number.parseInt(traceparent.slice(-2), 16) & SAMPLED) === SAMPLED
  );
}

function spanContextOf(traceparent: string | undefined): Api.SpanContext | undefined {
  const [, traceId, spanId, flags] = TRACEPARENT.exec(traceparent ?? '') ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined;
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
  const { take, warnings } = new Complaints(options.log);
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

/** The SDK reports a failed export as the JSON of its error. */
function exportError(json: string): Error {
  const [, code] = /"code":"?(\w+)/.exec(json) ?? [];
  const [, message = 'no answer'] = /"message":"((?:[^"\\]|\\.)*)"/.exec(json) ?? [];
  return Object.assign(new Error(message), code === undefined ? {} : { code });
}

class Complaints {
  readonly #log: Logger;
  #loggedAt = -Infinity;
  #untold = 0;
  #last = { at: -Infinity, reason: '' };

  constructor(log: Logger) {
    this.#log = log;
  }

  /** The SDK does not report success, so a warning ends after a minute without a failure. */
  readonly warnings = (): readonly string[] =>
    performance.now() - this.#last.at < COMPLAINT_MS ? [this.#last.reason] : [];

  readonly take = (message: string): void => {
    const now = performance.now();
    // The JSON may quote the collector's answer, so only the code is passed on.
    const reason = message.startsWith('{')
      ? contactReason(COLLECTOR, exportError(message))
      : message;
    this.#last = { at: now, reason };
    if (now - this.#loggedAt < COMPLAINT_MS) {
      this.#untold += 1;
      return;
    }
    const untold = this.#untold;
    this.#log.warn({ reason, untold }, 'traces are incomplete; requests are not affected');
    this.#loggedAt = now;
    this.#untold = 0;
  };
}
