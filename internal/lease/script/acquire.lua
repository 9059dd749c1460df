-- KEYS: sys, record, nonce tombstone, parked-by-tenant, n scopes, n lines.
-- ARGV: see acquireArgs. All or nothing, in one round trip.
local id, nonce, owner = ARGV[1], ARGV[2], ARGV[3]
local ttl, keyttl, maxhold = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local quarantine, force = tonumber(ARGV[7]), ARGV[8] == '1'
local order, waits, n = tonumber(ARGV[9]), ARGV[10], tonumber(ARGV[12])
if order < 0 then order = now end

-- The line's figures come as one argument: each costs the server, and most
-- acquires meet no line.
local waitms, linecap, parkcap, callms, channel
local function read_line_args()
  local a, b, c, d, e = string.match(ARGV[11], '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
  waitms, linecap, parkcap, callms, channel = tonumber(a), tonumber(b), tonumber(c), tonumber(d), e
end

-- The tombstone and the lines are rare: one call finds that there are none.
local rare = call('EXISTS', KEYS[3], unpack(KEYS, 5 + n, 4 + 2 * n))
-- The caller gave this very call up: its bytes arrive late.
if rare > 0 and call('EXISTS', KEYS[3]) == 1 then return { 'abandoned' } end
local lines = rare > 0
if lines then read_line_args() end

local rec = call('HMGET', KEYS[2], 's', 'f', 'g', 'o', 'c', 'n', 'mw', 'mb')
if rec[1] == 'X' then return { 'revoked', rec[7] or '', rec[8] or '' } end
local created, live = now, false
if rec[1] == 'A' then
  created = tonumber(rec[5])
  if created + maxhold <= now then return { 'max_hold' } end
  for i = 1, n do
    if alive(KEYS[4 + i], id) then live = true end
  end
end

local function place(f, g, verdict)
  local x = created + maxhold
  local expires = str(math.min(now + ttl, x))
  for i = 1, n do
    call('ZADD', KEYS[4 + i], expires, id)
    call('PEXPIRE', KEYS[4 + i], keyttl)
  end
  call('HSET', KEYS[2], 's', 'A', 'f', f, 'g', g, 'o', owner, 'c', str(created), 'x', str(x),
    'n', nonce, 'v', verdict, unpack(ARGV, 13 + n))
  call('PEXPIRE', KEYS[2], keyttl)
  return { verdict, f, g, str(x - now), rec[7] or '', rec[8] or '' }
end

if live then
  if rec[4] == owner and rec[6] == nonce then return place(rec[2], rec[3], 'held') end
  local f = next_fence(KEYS[1], call('HGET', KEYS[1], 'f'))
  return place(f, f, 'transferred')
end

local sys = call('HMGET', KEYS[1], 'e', 'f')
local epoch = sys[1]
if not epoch then
  epoch = str(now)
  call('HSET', KEYS[1], 'e', epoch)
end
if quarantine > 0 and not force and now - tonumber(epoch) < quarantine then
  return { 'warming_up', str(tonumber(epoch) + quarantine - now) }
end

-- Stands in one line at a time; the order given first is kept.
local function stand(i)
  read_line_args()
  local w = KEYS[4 + n + i]
  local mine = call('HGET', w, id)
  if mine then
    order = math.min(order, tonumber(string.match(mine, '^(%S+)')))
  elseif call('HLEN', w) >= linecap then
    return 'full'
  end
  call('ZREMRANGEBYSCORE', KEYS[4], '-inf', str(now))
  if not call('ZSCORE', KEYS[4], id) and call('ZCARD', KEYS[4]) >= parkcap then return 'full' end
  for j = 1, n do
    if j ~= i then call('HDEL', KEYS[4 + n + j], id) end
  end
  call('ZADD', KEYS[4], str(now + waitms), id)
  call('PEXPIRE', KEYS[4], str(keyttl + waitms))
  call('HSET', w, id, str(order) .. ' ' .. str(now + waitms) .. ' 0')
  call('PEXPIRE', w, str(keyttl + waitms))
  return 'parked'
end

local function deny(i, used, limit, yielding)
  local z, retry = KEYS[4 + i], callms -- read: who yields has met a line
  if not yielding then
    local nth = call('ZRANGEBYSCORE', z, '(' .. str(now), '+inf', 'WITHSCORES', 'LIMIT', math.max(used - limit, 0), 1)
    retry = nth[2] and (tonumber(nth[2]) - now) or -1
  end
  local stood = 'no'
  if string.sub(waits, i, i) == '1' then stood = stand(i) end
  return { 'denied', str(i), str(used), str(limit), str(retry), stood,
    unpack(call('ZRANGEBYSCORE', z, '(' .. str(now), '+inf', 'LIMIT', 0, 8)) }
end

local over = 'granted'
for i = 1, n do
  local z, w, limit = KEYS[4 + i], KEYS[4 + n + i], tonumber(ARGV[12 + i])
  local used = call('ZCARD', z)
  if used >= limit or lines then used = in_use(z) end
  local free, yielding = limit - used, false
  if lines and not force then
    local waiting, reserved, mine = line(w, id)
    free = free - reserved
    yielding = reserved > 0
    local mine_order = mine and math.min(mine.order, order) or order
    if string.sub(waits, i, i) ~= '1' then mine_order = math.huge end
    if not (mine and mine.called > 0) then
      for _, e in ipairs(waiting) do
        if free <= 0 or e.order >= mine_order then break end
        call_waiter(w, e, callms, channel)
        free = free - 1
        yielding = true
      end
    end
  end
  if free <= 0 then
    if not force then return deny(i, used, limit, yielding and used < limit) end
    over = 'granted_over'
  end
end

if lines then
  for i = 1, n do call('HDEL', KEYS[4 + n + i], id) end
end
if ARGV[9] ~= '-1' then call('ZREM', KEYS[4], id) end
local f = next_fence(KEYS[1], sys[2])
return place(f, f, over)
