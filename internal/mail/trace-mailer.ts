/** Makes each hand-over a span, without the recipient. */
import { inSpan, type SpanOptions } from '../platform/tracing.ts';
import type { Mailer } from './mailer.ts';

export function traceMailer(
  mailer: Mailer,
  relay: { readonly host: string; readonly port: number },
): Mailer {
  const span: SpanOptions = {
    name: 'send mail',
    kind: 'CLIENT',
    attributes: {
      'network.protocol.name': 'smtp',
      'server.address': relay.host,
      'server.port': relay.port,
    },
  };
  return {
    ...mailer,
    handOver: (...hand) =>
      inSpan(span, async (opened) => {
        const handOver = await mailer.handOver(...hand);
        opened?.set({ 'partner_ingest.mail': handOver.result });
        if (handOver.result === 'refused') opened?.fail(String(handOver.code));
        else if (handOver.result !== 'accepted') opened?.fail(handOver.result);
        return handOver;
      }),
  };
}
