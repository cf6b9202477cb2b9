import json, os, urllib.request

cursor = ""
while cursor is not None:
    path = "/capital/submissions?cursor=" + cursor
    key = {"Authorization": "Bearer " + os.environ["API_KEY"]}
    request = urllib.request.Request(os.environ["BASE_URL"] + path, headers=key)
    with urllib.request.urlopen(request, timeout=15) as answer:
        page = json.load(answer)["data"]
    for entry in page["submissions"]:
        print(entry["request_id"], entry["state"])
    cursor = page.get("next_cursor")
