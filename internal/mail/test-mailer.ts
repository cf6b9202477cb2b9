/** Where the e-mails of tests go: to one address of the operator's, or nowhere. */
import type { Mailer } from './mailer.ts';

/** No applicant is mailed. The answer, which the mail ledger keeps, says so. */
export function testMailer(mailer: Mailer, to: string | undefined): Pick<Mailer, 'handOver'> {
  if (to === undefined)
    return { handOver: () => Promise.resolve({ result: 'accepted', answer: 'test: not sent' }) };
  return {
    handOver: async (message, _applicant, ...more) => {
      const handOver = await mailer.handOver(message, to, ...more);
      if (handOver.result !== 'accepted') return handOver;
      return { ...handOver, answer: `${handOver.answer} (test: sent to TEST_MAIL_TO)` };
    },
  };
}
