import http.client, json, os, sys, time, urllib.error, urllib.request

def ask(cursor):
    path = "/capital/outcomes?cursor=" + cursor
    headers = {"Authorization": "Bearer " + os.environ["API_KEY"], "Prefer": "wait=30"}
    request = urllib.request.Request(os.environ["BASE_URL"] + path, headers=headers)
    with urllib.request.urlopen(request, timeout=45) as answer:
        return json.load(answer)["data"]

file = sys.argv[1]
cursor = open(file).read() if os.path.exists(file) else ""
while True:
    try:
        page = ask(cursor)
    except (OSError, http.client.HTTPException, ValueError) as lost:
        if isinstance(lost, urllib.error.HTTPError) and lost.code < 500 and lost.code not in (408, 429):
            raise
        time.sleep(5)
        continue
    for outcome in page["outcomes"]:
        print(outcome["request_id"], outcome["state"], flush=True)
    cursor = page["next_cursor"]
    with open(file + ".new", "w") as new:
        new.write(cursor)
    os.replace(file + ".new", file)
