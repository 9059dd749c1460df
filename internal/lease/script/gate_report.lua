-- KEYS: gate of the operation, set of gates.
-- ARGV: kind (ok|fail|limit|none), why, retry ms, ok count, window ms,
--       threshold, first backoff ms, last backoff ms, limited ms, operation, pass ('' = no probe's).
local kind, why, retry, oks = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local threshold, first, last = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local g = call('HMGET', KEYS[1], 's', 'u', 'b', 'ok', 'fail', 'w', 'p')
local state, untl, backoff = g[1] or 'open', tonumber(g[2] or '0'), tonumber(g[3] or '0')
local ok, fail, started = tonumber(g[4] or '0'), tonumber(g[5] or '0'), tonumber(g[6] or '0')
call('SADD', KEYS[2], ARGV[10])

local function set(...)
  call('HSET', KEYS[1], ...)
  call('PEXPIRE', KEYS[1], 3600000)
end
local function close(for_ms)
  set('s', 'closed', 'u', str(math.max(untl * (state == 'closed' and 1 or 0), now + for_ms)), 'why', why,
    'b', str(backoff), 'ok', '0', 'fail', '0', 'w', str(now))
  return { 'closed' }
end

if kind == 'limit' then
  set('limited', str(now + tonumber(ARGV[9])))
  return close(retry)
end
if state == 'closed' then return { 'closed' } end
if state == 'probing' then
  -- A call that began before the outage says nothing about now, whoever made it.
  if ARGV[11] == '' or ARGV[11] ~= g[7] then return { 'probing' } end
  if kind == 'ok' then
    call('HDEL', KEYS[1], 's', 'u', 'b', 'why', 'ok', 'fail', 'w', 'p')
    return { 'open' }
  end
  if kind == 'fail' then
    backoff = math.min(math.max(backoff * 2, first), last)
    return close(backoff)
  end
  -- The probe said nothing: the next caller probes.
  set('u', str(now))
  return { 'probing' }
end

if now - started > tonumber(ARGV[5]) then ok, fail, started = 0, 0, now end
ok = ok + oks
if kind == 'fail' then fail = fail + 1 end
if kind == 'fail' and fail >= threshold and fail * 2 >= ok + fail then
  backoff = first
  return close(backoff)
end
set('ok', str(ok), 'fail', str(fail), 'w', str(started))
return { 'open' }
