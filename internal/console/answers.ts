/** What a partner's requests got, in words. */

const MEANINGS: Readonly<Record<string, string>> = {
  '200': 'looked up',
  '202': 'accepted',
  '400': 'not a JSON object, too large, or not valid HTTP',
  '401': 'its key has ended or was revoked, or came from a foreign address',
  '403': 'the partner or the key is inactive',
  '404': 'asked for what does not exist',
  '405': 'wrong method',
  '408': 'came too slowly',
  '422': 'its Idempotency-Key was used with another body',
  '429': 'over the limit of its address or of the partner',
  '500': 'our fault: not accepted, and may be sent again',
  '503': 'our fault: its status could not be looked up',
  rejected: 'accepted, and later found invalid or a duplicate',
};

/** Most frequent first; the share that failed is undefined without a request. */
export function answersOf(got: Readonly<Record<string, number>> = {}) {
  const counts = Object.entries(got);
  const total = (fits: (got: string) => boolean): number =>
    counts.reduce((sum, [key, count]) => (fits(key) ? sum + count : sum), 0);
  const requests = total((key) => key !== 'rejected');
  const isFailed = (key: string): boolean => key === 'rejected' || key >= '4';
  const answers = counts
    .map(([key, count]) => ({
      got: key,
      count,
      failed: isFailed(key),
      meaning: MEANINGS[key] ?? '',
      // Work of earlier minutes may be decided in this hour.
      share: requests === 0 ? undefined : Math.min(1, count / requests),
    }))
    .toSorted((one, other) => other.count - one.count);
  return {
    requests,
    answers,
    failedShare: requests === 0 ? undefined : Math.min(1, total(isFailed) / requests),
  };
}
