/** Constructs what hands e-mails to the relay. */
import { MailGate, SLOW_IN_ALL } from '../../internal/mail/mail-gate.ts';
import { MailPace, PACE_TIMEOUT_MS } from '../../internal/mail/mail-pace.ts';
import { createMailer } from '../../internal/mail/mailer.ts';
import type { Outage } from '../../internal/mail/relay-answers.ts';
import type { Relay } from '../../internal/mail/relay.ts';
import { Contact } from '../../internal/platform/stores/contact-failure.ts';
import type { Opened } from '../../internal/platform/process/open-process.ts';
import { createRedis } from '../../internal/platform/stores/redis.ts';
import { redisOf, type ConfigOf } from '../../internal/settings/settings.ts';
import type { ProcessorMetrics } from '../../internal/telemetry/metrics.ts';

/** A relay that is silent for longer counts as away, and the processor is ready without it. */
const FIRST_ANSWER_MS = 15_000;

export function openMail(
  config: ConfigOf<'processor'>,
  relay: Relay,
  parts: Opened<ProcessorMetrics>,
) {
  const { clock, metrics, ready, warnings, log, closers } = parts;
  const mailer = createMailer({
    relay,
    clientName: config.MAIL_CLIENT_NAME,
    from: config.MAIL_FROM,
    fromName: config.MAIL_FROM_NAME,
    maxConnections: mailPlaces(config) + SLOW_IN_ALL,
  });
  closers.add('mailer', () => mailer.close());

  const at = `${relay.host}:${relay.port}`;
  const contact = new Contact({ name: 'Relay', at, setting: 'SMTP_URL' }, log);
  // A rollout with a wrong password or sender stops at its first pod. Once the relay has taken both,
  // a refusal leaves the processor ready.
  let state: 'unknown' | 'refused' | 'away' | 'taken' = 'unknown';
  const giveUp = setTimeout(() => (state = state === 'unknown' ? 'away' : state), FIRST_ANSWER_MS);
  closers.add('first answer', () => clearTimeout(giveUp));
  ready.push(() => (state === 'refused' ? contact.warnings() : []));
  ready.push(() => (state === 'unknown' ? [`Relay at ${at}: it has not answered yet`] : []));
  warnings.push(() => (state === 'refused' ? [] : contact.warnings()));
  const show = (outage: Outage | undefined): void => {
    metrics.workerPaused.set({ waits_for: 'relay' }, outage === undefined ? 0 : 1);
    metrics.senderRefused.set(outage?.reason === 'refused' ? 1 : 0);
  };
  show(undefined);
  const onOutage = (outage: Outage | undefined): void => {
    show(outage);
    if (outage === undefined) contact.ok();
    else contact.failed(outage.error);
    if (state === 'taken') return;
    if (outage === undefined) state = 'taken';
    else state = outage.reason === 'refused' ? 'refused' : 'away';
  };
  const mailGate = new MailGate({
    places: mailPlaces(config),
    pace: openMailPace(config, parts),
    probe: () => mailer.probe(),
    onOutage,
    clock,
    log,
  });
  closers.add('mail gate', () => mailGate.close());
  void mailGate.greet();
  return { mailer, mailGate };
}

function openMailPace(
  config: ConfigOf<'processor'>,
  { clock, closers, ...tools }: Opened<ProcessorMetrics>,
): MailPace | undefined {
  const { MAIL_PER_SECOND: perSecond, PROCESSOR_REPLICAS: processes } = config;
  if (perSecond === 0) return undefined;
  const { redisUrl, redisTls } = redisOf(config);
  const use = { commandTimeoutMs: PACE_TIMEOUT_MS };
  const redis = createRedis(redisUrl, use, { ...tools, redisTls });
  closers.add('mail pace', () => redis.disconnect());
  return new MailPace({ perSecond, processes, redis, clock });
}

function mailPlaces(config: ConfigOf<'processor'>): number {
  return config.MAIL_CONNECTIONS === 0 ? config.PROCESSOR_CONCURRENCY : config.MAIL_CONNECTIONS;
}
