/** The partners' contract: paths, bodies, errors. */
import { z } from 'zod';
import { fields, partnerReasonCodes } from '../application/reasons.ts';
import { testEndings } from '../application/test-endings.ts';
import { ACCEPTED_MESSAGE } from './errors.ts';
import { MAX_IDEMPOTENCY_KEY } from './limits.ts';

export const BASE_PATH = '/api/v1';
export const INGEST_PATH = `${BASE_PATH}/capital/ingest`;
export const STATUS_PATH = `${INGEST_PATH}/:request_id`;
export const LIST_PATH = `${BASE_PATH}/capital/submissions`;

export const EXAMPLE_ID = 'req_01m7yefdj3fantjpk5mzvj8mwh';
export const requestId = z
  .string()
  .regex(/^req_[0-7][0-9a-hjkmnp-tv-z]{25}$/)
  .meta({
    description:
      'Id of a request, for tracking and for support; every answer has one in `X-Request-Id`.',
    examples: [EXAMPLE_ID],
  });

export const statusMessages = {
  processing: 'The application is being processed',
  completed: 'The account exists and the applicant has been e-mailed',
  rejected: 'The application was rejected for the reasons given',
  undeliverable: 'The account exists, but the e-mail to the applicant was refused for good',
  not_accepted: 'The request was answered with an error and is not processed',
} as const;
export type Status = keyof typeof statusMessages;

const statuses = Object.entries(statusMessages);

export const idempotencyKey = z
  .string()
  .regex(
    new RegExp(
      `^("[ !#-\\[\\]-~]{1,${MAX_IDEMPOTENCY_KEY}}"|[!#-+\\--:<-\\[\\]-~]{1,${MAX_IDEMPOTENCY_KEY}})$`,
    ),
  )
  .meta({
    description:
      'Extension. A string of your own choice for this submission, 1 to 255 characters of ASCII in double quotes, such as ' +
      'a random UUID; nothing personal. The same key with the same body gets the first answer again, so that a request ' +
      'without an answer can be sent again.',
    examples: ['"8e03978e-40d5-43dd-bc93-6894a57f9324"'],
  });

export const acceptedBody = z.object({
  message: z.string().meta({ examples: [ACCEPTED_MESSAGE] }),
  data: z.object({ request_id: requestId }),
});

export const errorBody = z.object({
  error: z.string().meta({
    description: 'What went wrong, in a sentence for people: programs go by the status code.',
  }),
});

export const malformedBody = errorBody.extend({ data: z.object({ request_id: requestId }) });

const reason = z.object({
  field: z
    .enum(fields)
    .optional()
    .meta({ description: 'Absent where the reason is not about one field.' }),
  code: z.enum(partnerReasonCodes),
  message: z.string().meta({ description: 'The same in a sentence. Never quotes the value.' }),
});

const time = (description: string) => z.string().meta({ format: 'date-time', description });

const statusNames = z.enum(statuses.map(([status]) => status) as [Status, ...Status[]]);

const statusData = z.object({
  request_id: requestId,
  state: statusNames.meta({
    description: statuses.map(([status, message]) => `- \`${status}\`: ${message}.`).join('\n'),
  }),
  received_at: time('When the request was received.'),
  updated_at: time('When its processing last came a step further.'),
  reasons: z.array(reason).meta({ description: 'Every reason of a rejection; otherwise empty.' }),
});

export const statusBody = z.object({
  message: z.string().meta({ description: 'The state in a sentence.' }),
  data: statusData,
});

export const listBody = z.object({
  message: z.string(),
  data: z.object({
    submissions: z.array(
      statusData.extend({
        idempotency_key: z.string().optional().meta({ description: 'As it was asked for.' }),
      }),
    ),
    next_cursor: requestId.optional().meta({ description: 'Absent on the last page.' }),
  }),
});

/** An empty parameter is as good as none. */
const parameter = <Value>(schema: z.ZodType<Value>, description: string) =>
  z
    .union([schema, z.literal('')])
    .optional()
    .meta({ description });
const pointInTime = z.iso.datetime({ offset: true });

export const listQuery = z.strictObject({
  since: parameter(pointInTime, 'Received at this time of RFC 3339 or later.'),
  until: parameter(pointInTime, 'Received before this time of RFC 3339.'),
  state: parameter(statusNames, 'Only those in this state.'),
  cursor: parameter(requestId, '`next_cursor` of the page before.'),
  idempotency_key: parameter(
    z.string().regex(new RegExp(`^[ -~]{1,${MAX_IDEMPOTENCY_KEY}}$`)),
    'Only the submission with this `Idempotency-Key`, without quotes.',
  ),
});

/** A table in Markdown, for the documents. */
export const testEndingsTable = [
  '| `ein` | Answer | Outcome |',
  '| --- | --- | --- |',
  ...[...testEndings].map(
    ([ein, { answer, outcome }]) => `| \`${ein}\` | ${answer} | ${outcome} |`,
  ),
  '| any other | 202 | as for a live key, judged among the tests of this partner |',
].join('\n');
