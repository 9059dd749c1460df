-- KEYS: sys, record, nonce tombstone, parked-by-tenant, n scopes, n lines.
-- ARGV: see acquireArgs. All or nothing, in one round trip.
local id, nonce, owner = ARGV[1], ARGV[2], ARGV[3]
local ttl, keyttl, maxhold = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local quarantine, force = tonumber(ARGV[7]), ARGV[8] == '1'
local order, waits, about, n = tonumber(ARGV[9]), ARGV[10], ARGV[12], tonumber(ARGV[13])
if order < 0 then order = now end

local seen = call('MGET', KEYS[3], KEYS[2], KEYS[1])
-- The caller gave this very call up: its bytes arrive late.
if seen[1] then return { 'abandoned' } end
local last, epoch, lined = read_sys(seen[3])

-- The line's figures come as one argument: each costs the server, and most
-- acquires meet no line.
local waitms, linecap, parkcap, callms, channel
local function read_line_args()
  local a, b, c, d, e = string.match(ARGV[11], '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
  waitms, linecap, parkcap, callms, channel = tonumber(a), tonumber(b), tonumber(c), tonumber(d), e
end
local lines = lined > now and call('EXISTS', unpack(KEYS, 5 + n, 4 + 2 * n)) > 0
if lines then read_line_args() end

local rec = read_record(seen[2])
if rec.s == 'X' then return { 'revoked', rec.mark } end
local created, live = now, false
if rec.s == 'A' then
  created = tonumber(rec.c)
  if created + maxhold <= now then return { 'max_hold' } end
  for i = 1, n do
    if alive(KEYS[4 + i], id) then live = true end
  end
end

-- A key that is there already was given its time to live by whoever made it;
-- the client says when it has to be given anew (see touches).
local fresh = ARGV[14] == '1'
local function place(f, g, verdict, used)
  local x = created + maxhold
  local expires = str(math.min(now + ttl, x))
  for i = 1, n do
    call('ZADD', KEYS[4 + i], expires, id)
    if fresh or used[i] == 0 then call('PEXPIRE', KEYS[4 + i], keyttl) end
  end
  local mark = rec.mark or '='
  write_record(KEYS[2], keyttl, { s = 'A', f = f, g = g, o = owner, c = str(created), x = str(x), n = nonce, v = verdict,
    mark = mark, about = about })
  return { verdict, f, g, str(x - now), mark }
end

if live then
  fresh = true
  if rec.o == owner and rec.n == nonce then return place(rec.f, rec.g, 'held') end
  local f = next_fence(last)
  write_sys(KEYS[1], f, epoch, lined)
  return place(str(f), str(f), 'transferred')
end

if epoch == 0 then
  epoch = now
  write_sys(KEYS[1], last, epoch, lined)
end
if quarantine > 0 and not force and now - epoch < quarantine then
  return { 'warming_up', str(epoch + quarantine - now) }
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
  call('ZADD', KEYS[4], str(now + waitms), id)
  call('PEXPIRE', KEYS[4], str(keyttl + waitms))
  call('HSET', w, id, str(order) .. ' ' .. str(now + waitms) .. ' 0')
  call('PEXPIRE', w, str(keyttl + waitms))
  if lined < now + waitms then write_sys(KEYS[1], last, epoch, now + waitms) end
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
  -- A slot that was kept for it in another scope goes to the next in line.
  if lines then
    for j = 1, n do
      if j ~= i or stood ~= 'parked' then leave(KEYS[4 + n + j], id, callms, channel) end
    end
  end
  return { 'denied', str(i), str(used), str(limit), str(retry), stood,
    unpack(call('ZRANGEBYSCORE', z, '(' .. str(now), '+inf', 'LIMIT', 0, 8)) }
end

local over, used = 'granted', {}
for i = 1, n do
  local z, w, limit = KEYS[4 + i], KEYS[4 + n + i], tonumber(ARGV[14 + i])
  used[i] = call('ZCARD', z)
  if used[i] >= limit or lines then used[i] = in_use(z) end
  local free, yielding = limit - used[i], false
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
  -- An id that stands in the set without a record that we can read (evicted, or
  -- of an older form) has its slot there already.
  if free <= 0 and not alive(z, id) then
    if not force then return deny(i, used[i], limit, yielding and used[i] < limit) end
    over = 'granted_over'
  end
end

if lines then
  for i = 1, n do call('HDEL', KEYS[4 + n + i], id) end
end
if ARGV[9] ~= '-1' then call('ZREM', KEYS[4], id) end
local f = next_fence(last)
write_sys(KEYS[1], f, epoch, lined)
f = str(f)
return place(f, f, over, used)
