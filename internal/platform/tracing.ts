/**
 * Spans around what the service does. Off, each function here is one branch, and OpenTelemetry's
 * SDK is not even loaded.
 *
 * The tracer belongs to the process, as OpenTelemetry's own does, so that no function has to pass
 * it on. A span holds only what is given here: no library is patched, so no library can put its
 * arguments into one.
 */
import type * as Api from '@opentelemetry/api';
import type { Attributes } from '@opentelemetry/api';
import type { Probe } from './admin-server.ts';
import { contactReason } from './contact.ts';
import { withDeadline } from './deadline.ts';
import type { Logger } from './log.ts';

export interface SpanOptions {
  readonly name: string;
  readonly kind: keyof typeof Api.SpanKind;
  /**
   * Named by OpenTelemetry's conventions where those have a name. Never personal data, never a key.
   */
  readonly attributes?: Attributes;
  /**
   * The traceparent to go on from; `undefined` begins a new trace. Left out, the span around this
   * one is the parent.
   */
  readonly parent?: string | undefined;
  /** Traceparents of other spans that led to this one. */
  readonly links?: readonly (string | undefined)[];
  /** When it began, if that was before now. */
  readonly startedAt?: Date;
}

export interface Span {
  /** Stored and passed on, so that other processes continue from this span. */
  readonly traceparent: string;
  set(attributes: Attributes): void;
  /** Marks it as failed with a class or a code. A message could quote data, so there is none. */
  fail(errorType: string): void;
  end(): void;
}

/** The same step taken for several at once: a span in each of their traces that is sampled. */
export interface Spans {
  /** Of each span, and where there is none the one it was asked for with. */
  readonly traceparents: readonly (string | undefined)[];
  fail(errorType: string): void;
  end(): void;
}

interface OpenTelemetry {
  readonly api: typeof Api;
  readonly tracer: Api.Tracer;
}
let otel: OpenTelemetry | undefined;

/**
 * Whether spans are made. Asked first wherever making one would cost a healthy request something.
 */
export function tracing(): boolean {
  return otel !== undefined;
}

/** Starts a span that the caller ends; undefined while tracing is off. */
export function startSpan(options: SpanOptions): Span | undefined {
  return otel === undefined ? undefined : wrap(otel, open(otel, options));
}

/** Starts a span for each sampled one of `parents`; undefined while tracing is off. */
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

/**
 * Runs `work` in a span, so that the spans made meanwhile are its children; an error marks it and
 * is thrown on.
 */
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
      ...(options.attributes === undefined ? {} : { attributes: options.attributes }),
      ...(options.startedAt === undefined ? {} : { startTime: options.startedAt }),
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

/** The code of an error, else its class: what the conventions ask for in `error.type`. */
export function errorTypeOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error;
  const { code } = error as { code?: unknown };
  return typeof code === 'string' || typeof code === 'number' ? String(code) : error.name;
}

/** W3C Trace Context, version 00, with neither id all zeros. */
const TRACEPARENT = /^00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})$/;
const SAMPLED = 1;

/** Whether `value` is a valid traceparent to continue from. */
export function isTraceparent(value: unknown): value is string {
  return typeof value === 'string' && TRACEPARENT.test(value);
}

/**
 * The decision made at ingest, of which most requests under load are not: so this comes before
 * everything else.
 */
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

/**
 * The `trace_id` of a log line about something with this traceparent; also while tracing is off.
 */
export function traceFields(traceparent: string | undefined): { readonly trace_id?: string } {
  const traceId = spanContextOf(traceparent)?.traceId;
  return traceId === undefined ? {} : { trace_id: traceId };
}

/**
 * The last spans get this long to leave; a collector that is away must not hold up a drain (alone
 * it takes 8 s).
 */
const CLOSE_MS = 2_000;

/**
 * Loads and starts the SDK, which reads the standard `OTEL_*` variables itself: endpoint, headers,
 * sampler, resource. Spans wait in a bounded buffer and are dropped beyond it. Called once in a
 * process.
 */
export async function startTracing(options: {
  readonly serviceName: string;
  readonly log: Logger;
}): Promise<{ readonly warnings: Probe; close(): Promise<void> }> {
  const [api, { NodeSDK }] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/sdk-node'),
  ]);
  const sdk = new NodeSDK({
    serviceName: options.serviceName,
    // Metrics are Prometheus's and logs go to standard output; without these lines the SDK would
    // send both as well.
    metricReaders: [],
    logRecordProcessors: [],
  });
  const { take, warnings } = new Complaints(options.log);
  api.diag.setLogger(
    { error: take, warn: take, info: () => {}, debug: () => {}, verbose: () => {} },
    // The SDK has put a plain-text logger there if OTEL_LOG_LEVEL is set; our lines are JSON.
    { logLevel: api.DiagLogLevel.WARN, suppressOverrideMessage: true },
  );
  sdk.start();
  otel = { api, tracer: api.trace.getTracer(options.serviceName) };
  return {
    warnings,
    close: () => withDeadline(sdk.shutdown(), CLOSE_MS, 'sending the last spans'),
  };
}

/** A collector that is away fails every export: one line in this time, and as long a warning. */
const COMPLAINT_MS = 60_000;

const COLLECTOR = {
  name: 'OpenTelemetry collector',
  setting: 'OTEL_EXPORTER_OTLP_ENDPOINT',
  rights: 'OTEL_EXPORTER_OTLP_HEADERS',
};

/** The SDK tells a failed export as the JSON of its error. */
function exportError(json: string): Error {
  const [, code] = /"code":"?(\w+)/.exec(json) ?? [];
  const [, message = 'no answer'] = /"message":"((?:[^"\\]|\\.)*)"/.exec(json) ?? [];
  return Object.assign(new Error(message), code === undefined ? {} : { code });
}

/** What the SDK complains of: logged at most once a minute, and a warning for as long. */
class Complaints {
  readonly #log: Logger;
  #toldAt = -Infinity;
  #untold = 0;
  #last = { at: -Infinity, reason: '' };

  constructor(log: Logger) {
    this.#log = log;
  }

  /** The SDK tells no success, so a warning ends when no export has failed for a minute. */
  readonly warnings = (): readonly string[] =>
    performance.now() - this.#last.at < COMPLAINT_MS ? [this.#last.reason] : [];

  readonly take = (message: string): void => {
    const now = performance.now();
    // A failed export comes as the JSON of its error, which may quote the collector's answer: only
    // the code is passed on.
    const reason = message.startsWith('{')
      ? contactReason(COLLECTOR, exportError(message))
      : message;
    this.#last = { at: now, reason };
    if (now - this.#toldAt < COMPLAINT_MS) {
      this.#untold += 1;
      return;
    }
    const untold = this.#untold;
    this.#log.warn({ reason, untold }, 'traces are incomplete; requests are not affected');
    this.#toldAt = now;
    this.#untold = 0;
  };
}
