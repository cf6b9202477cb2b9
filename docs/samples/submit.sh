answer=$(mktemp) && trap 'rm -f "$answer"' EXIT
# The API key goes in by the standard input: arguments can be seen by others.
status=$(curl --config - --silent --show-error --output "$answer" --write-out '%{http_code}' \
  --connect-timeout 5 --max-time 15 --retry 7 --retry-all-errors \
  --header 'Content-Type: application/json' --header "Idempotency-Key: \"$2\"" \
  --data-binary "@$1" "$BASE_URL/capital/ingest" << CONFIG
header = "Authorization: Bearer $API_KEY"
CONFIG
)
cat "$answer" && echo
case $status in
  202) exit 0 ;;
  000 | 408 | 429 | 5??) echo 'no answer yet: send the same later' >&2 && exit 2 ;;
  *) echo "refused with $status: do not repeat" >&2 && exit 1 ;;
esac
