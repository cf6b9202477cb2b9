import http.client, os, random, sys, time, urllib.error, urllib.request

def once(body, key):
    """The status, the headers and the body of one try; the status is 0 where no answer came."""
    request = urllib.request.Request(os.environ["BASE_URL"] + "/capital/ingest", data=body, headers={
        "Authorization": "Bearer " + os.environ["API_KEY"],
        "Content-Type": "application/json",
        "Idempotency-Key": f'"{key}"',
    })
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.headers, answer.reason
    except (OSError, http.client.HTTPException) as lost:
        return 0, {}, str(lost)

def submit(body, key):
    for attempt in range(8):
        status, headers, said = once(body, key)
        if status == 202:
            print(headers["X-Request-Id"])
            return 0
        print(status or "no answer", said, headers.get("X-Request-Id", ""), file=sys.stderr)
        if status not in (0, 408, 429) and status < 500:
            return 1
        wait = headers.get("Retry-After", "")
        time.sleep((int(wait) if wait.isdigit() else min(2**attempt, 60)) + random.random())
    return 2

with open(sys.argv[1], "rb") as file:
    sys.exit(submit(file.read(), sys.argv[2]))
