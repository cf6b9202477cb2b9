next=
while page=$(curl --config - --silent --show-error --fail --max-time 15 --retry 7 \
  "$BASE_URL/capital/submissions?cursor=$next" << CONFIG
header = "Authorization: Bearer $API_KEY"
CONFIG
); do
  echo "$page"
  next=$(echo "$page" | sed -n 's/.*"next_cursor":"\([^"]*\)".*/\1/p')
  [ -n "$next" ] || exit 0
done
exit 1
