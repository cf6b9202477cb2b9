touch "$1"
while :; do
  page=$(curl --config - --silent --show-error --fail --max-time 45 --retry 7 \
    --header 'Prefer: wait=30' "$BASE_URL/capital/outcomes?cursor=$(cat "$1")" << CONFIG
header = "Authorization: Bearer $API_KEY"
CONFIG
  ) || case $? in 22) exit 1 ;; *) sleep 5 && continue ;; esac
  echo "$page"
  echo "$page" | sed -n 's/.*"next_cursor":"\([^"]*\)".*/\1/p' > "$1.new" && mv "$1.new" "$1"
done
