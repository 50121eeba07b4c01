-- Prints what wrk counted as one line of key=value pairs. It defines `done` alone: a `request`
-- or `response` function would run for every exchange and make the generator the bottleneck.
function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    "COUNTED responses=%d duration_us=%d p50_us=%d p99_us=%d max_us=%d connect=%d read=%d write=%d status=%d timeout=%d\n",
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), latency.max,
    errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
