/**
 * The settings of traces. No promise depends on them, so a value that cannot be used is told and
 * the default counts. OpenTelemetry compares names without regard to case.
 */
import { z } from 'zod';

const usedBy = ['ingest', 'processor'] as const;

/** The start-up line prints it, so credentials belong in OTEL_EXPORTER_OTLP_HEADERS. */
const collectorUrl = z.string().refine((value) => {
  const url = URL.parse(value);
  return (
    url !== null && /^https?:$/.test(url.protocol) && url.username === '' && url.password === ''
  );
}, 'must be a URL that starts with http:// or https:// and holds no user or password (see OTEL_EXPORTER_OTLP_HEADERS)');

const samplers = ['always_on', 'always_off', 'traceidratio'] as const;
const oneOf = <const Names extends readonly string[]>(names: Names) =>
  z.string().toLowerCase().pipe(z.enum(names));
const lenient = true;

export const otelSettings = {
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    schema: collectorUrl.optional(),
    usedBy,
    lenient,
    about:
      'OTLP collector; traces go to `/v1/traces` there. Without it and the next one nothing is traced, at no cost.',
  },
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: {
    schema: collectorUrl.optional(),
    usedBy,
    lenient,
    about: 'Whole URL for traces, instead of the one above.',
  },
  OTEL_EXPORTER_OTLP_PROTOCOL: {
    schema: oneOf(['http/protobuf', 'http/json', 'grpc']).default('http/protobuf'),
    usedBy,
    lenient,
    about: 'How the collector is spoken to.',
  },
  OTEL_TRACES_EXPORTER: {
    schema: oneOf(['otlp', 'none']).default('otlp'),
    usedBy,
    lenient,
    about: '`none` switches tracing off.',
  },
  OTEL_TRACES_SAMPLER: {
    schema: oneOf([
      ...samplers,
      'parentbased_always_on',
      'parentbased_always_off',
      'parentbased_traceidratio',
    ]).default('parentbased_always_on'),
    usedBy,
    lenient,
    about:
      'Which traces are kept. With a `parentbased_` one a partner that sends `traceparent` decides for its requests.',
  },
  OTEL_TRACES_SAMPLER_ARG: {
    schema: z
      .string()
      .regex(/^(0?\.\d+|0\.?|1(\.0*)?)$/, 'must be a number from 0 to 1')
      .transform(Number)
      .default(1),
    usedBy,
    lenient,
    about: 'Share of traces that the `traceidratio` samplers keep.',
  },
  OTEL_SERVICE_NAME: {
    schema: z.string().min(1).optional(),
    usedBy,
    lenient,
    about:
      'The process in traces; `partner-ingest-ingest` or `partner-ingest-processor` unless set.',
  },
  OTEL_SDK_DISABLED: {
    schema: oneOf(['true', 'false'])
      .default('false')
      .transform((value) => value === 'true'),
    usedBy,
    lenient,
    about: '`true` switches tracing off.',
  },
} as const;

type OtelConfig = {
  readonly [Name in keyof typeof otelSettings]: z.output<(typeof otelSettings)[Name]['schema']>;
};

/**
 * Undefined where nothing is traced. `variables` is what the SDK must find in the environment, which
 * it reads by itself and more strictly.
 */
export function tracesOf(config: OtelConfig, process: string) {
  const endpoint = config.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ?? config.OTEL_EXPORTER_OTLP_ENDPOINT;
  if (endpoint === undefined || config.OTEL_TRACES_EXPORTER === 'none' || config.OTEL_SDK_DISABLED)
    return undefined;
  return {
    serviceName: config.OTEL_SERVICE_NAME ?? `partner-ingest-${process}`,
    variables: {
      OTEL_SDK_DISABLED: 'false',
      OTEL_TRACES_EXPORTER: config.OTEL_TRACES_EXPORTER,
      OTEL_EXPORTER_OTLP_PROTOCOL: config.OTEL_EXPORTER_OTLP_PROTOCOL,
      OTEL_TRACES_SAMPLER: config.OTEL_TRACES_SAMPLER,
      OTEL_TRACES_SAMPLER_ARG: String(config.OTEL_TRACES_SAMPLER_ARG),
    },
  };
}
