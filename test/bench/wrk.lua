-- Load for the bench: valid applications from ever new client addresses; prints one line of JSON at the end.
-- Argument: the API key.
local thread_count = 0
function setup(thread)
  thread:set("thread_id", thread_count)
  thread_count = thread_count + 1
end

function init(args)
  key = args[1]
  count = 0
  math.randomseed(os.time() + thread_id * 7919)
end

function request()
  count = count + 1
  local address = string.format("%d.%d.%d.%d", math.random(11, 120), math.random(0, 255), math.random(0, 255), math.random(1, 254))
  local body = string.format(
    '{"email":"load-%d-%d@example.com","business_name":"Load Test %d Ltd","ein":"%09d"}',
    thread_id, count, count, math.random(0, 999999999))
  local headers = {
    ["Authorization"] = "Bearer " .. key,
    ["Content-Type"] = "application/json",
    ["X-Forwarded-For"] = address,
  }
  return wrk.format("POST", nil, headers, body)
end

function done(summary, latency)
  io.write(string.format('\nRESULT {"requests":%d,"seconds":%.3f,"p99Ms":%.2f,"badStatus":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(99) / 1e3, summary.errors.status))
end
