/** A new field of the body needs one row of one table, and no other file. */
import { expect, test } from '@jest/globals';
import { bodyFields, only, text } from '../internal/application/fields.ts';

const phone = {
  name: 'phone_number',
  rule: text('phone_number').refine(
    (value) => /^\d+$/.test(value),
    only('invalid_format', 'phone_number must be digits.'),
  ),
  claim: (value: unknown) => (typeof value === 'string' ? value : undefined),
  mask: () => '+***',
  label: 'phone',
  sample: '5550100',
  schema: { pattern: '^[0-9]+$' },
};
Object.assign(bodyFields, { phone });
// What is built from the table when it is loaded comes after the row.
const { parseApplication } = await import('../internal/application/parse-application.ts');
const { maskText } = await import('../internal/operators/view/mask.ts');
const { recordJson } = await import('../internal/operators/view/record.ts');
const { openApiDocument } = await import('../internal/ingest/contract.ts');
const { namedAsSent, normalizedApplicant, sampleApplication } =
  await import('../internal/application/fields.ts');

const parse = (body: object) => parseApplication(Buffer.from(JSON.stringify(body)));
const sample = namedAsSent(sampleApplication());

test('is parsed, and is a reason for rejecting', () => {
  expect(parse(sample)).toMatchObject({ valid: true, application: { phone: '5550100' } });
  const { phone_number: _left, ...without } = sample;
  expect(parse(without)).toMatchObject({
    reasons: [{ field: 'phone_number', code: 'missing', message: 'phone_number is required.' }],
  });
  expect(parse({ ...sample, phone_number: '+1' })).toMatchObject({
    reasons: [{ field: 'phone_number', code: 'invalid_format' }],
    claimed: { phone: '+1' },
  });
});

test('is kept in the record, and masked wherever people see it', () => {
  const applicant = normalizedApplicant(sampleApplication());
  expect(applicant).toMatchObject({ phone: '5550100' });
  const record = { _id: 'req_1', history: [], applicant } as never;
  expect(recordJson(record, false)).toMatchObject({ applicant: { phone_number: '+***' } });
  expect(recordJson(record, true)).toMatchObject({ applicant: { phone_number: '5550100' } });
  expect(maskText('{"phone_number":"5550100"}')).toBe('{"phone_number":"9999999"}');
});

test('is in the OpenAPI document', () => {
  const settings = { rateLimitMax: 1, rateLimitWindowSeconds: 1, statusEndpoint: true };
  expect(openApiDocument(settings).components.schemas).toMatchObject({
    Application: {
      properties: {
        phone_number: { type: 'string', pattern: '^[0-9]+$', examples: ['5550100'] },
      },
      required: ['email', 'business_name', 'ein', 'phone_number'],
    },
    Reason: {
      properties: { field: { enum: ['email', 'business_name', 'ein', 'phone_number'] } },
    },
  });
});
