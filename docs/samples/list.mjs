let cursor = '';
do {
  const answer = await fetch(`${process.env.BASE_URL}/capital/submissions?cursor=${cursor}`, {
    headers: { authorization: `Bearer ${process.env.API_KEY}` },
    signal: AbortSignal.timeout(15_000),
  });
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
  const { data } = await answer.json();
  for (const { request_id, state } of data.submissions) console.log(request_id, state);
  cursor = data.next_cursor;
} while (cursor !== undefined);
