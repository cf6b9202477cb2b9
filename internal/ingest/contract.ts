/** The partners' contract: paths, states, parameters. */
import { z } from 'zod';
import { MAX_IDEMPOTENCY_KEY } from './limits.ts';

export const BASE_PATH = '/api/v1';
export const INGEST_PATH = `${BASE_PATH}/capital/ingest`;
export const STATUS_PATH = `${INGEST_PATH}/:request_id`;
export const LIST_PATH = `${BASE_PATH}/capital/submissions`;

export const requestId = z.string().regex(/^req_[0-7][0-9a-hjkmnp-tv-z]{25}$/);

export const statusMessages = {
  processing: 'The application is being processed',
  completed: 'The account exists and the applicant has been e-mailed',
  rejected: 'The application was rejected for the reasons given',
  undeliverable: 'The account exists, but the e-mail to the applicant was refused for good',
  not_accepted: 'The request was answered with an error and is not processed',
} as const;
export type Status = keyof typeof statusMessages;
/** Of a test, where the words above would be false. */
export const testMessages: Partial<Record<Status, string>> = {
  completed: 'A test: the account would exist and the applicant would have been e-mailed',
  undeliverable:
    'A test: the account would exist, but the e-mail to the applicant would have been refused for good',
};

/** An empty parameter is as good as none. */
const parameter = <Value>(schema: z.ZodType<Value>) => z.union([schema, z.literal('')]).optional();
const pointInTime = z.iso.datetime({ offset: true });

export const listQuery = z.strictObject({
  since: parameter(pointInTime),
  until: parameter(pointInTime),
  state: parameter(z.enum(Object.keys(statusMessages) as Status[])),
  cursor: parameter(requestId),
  idempotency_key: parameter(z.string().regex(new RegExp(`^[ -~]{1,${MAX_IDEMPOTENCY_KEY}}$`))),
});
