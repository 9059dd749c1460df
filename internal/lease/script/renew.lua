-- KEYS: sys, record, n scopes. ARGV: see renewArgs.
-- The grant (the fence of the last acquire) names the holder: a holder whose
-- reattaching answer was lost still knows its grant, and after a loss of data
-- the younger grant wins over an older holder that came back first.
local id, grant, owner = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local ttl, keyttl = tonumber(ARGV[4]), ARGV[5]
local maxhold, remain = tonumber(ARGV[6]), tonumber(ARGV[7])
local strict, n = ARGV[8] == '1', tonumber(ARGV[9])

local seen = call('MGET', KEYS[2], KEYS[1])
local rec = read_record(seen[1])
local mine = false
if rec.s == 'X' then return { 'revoked', rec.mark } end
if rec.s then
  local theirs = tonumber(rec.g)
  if theirs > grant then return { 'transferred' } end
  mine = theirs == grant
  if mine and rec.s == 'R' then return { 'released' } end
end

local x = now + remain
if mine then x = tonumber(rec.x) end
if x <= now then
  for i = 1, n do call('ZREM', KEYS[2 + i], id) end
  return { 'max_hold' }
end
local expires = str(math.min(now + ttl, x))

local function place()
  for i = 1, n do
    call('ZADD', KEYS[2 + i], expires, id)
    call('PEXPIRE', KEYS[2 + i], keyttl)
  end
  call('PEXPIRE', KEYS[2], keyttl)
end

local missing = {}
for i = 1, n do
  if not alive(KEYS[2 + i], id) then missing[#missing + 1] = i end
end
if mine and #missing == 0 then
  place()
  return { 'held', rec.f, str(x - now), rec.mark }
end

local over = 'reattached'
for _, i in ipairs(missing) do
  if in_use(KEYS[2 + i]) >= tonumber(ARGV[9 + i]) then over = 'reattached_over' end
end
if strict and over == 'reattached_over' then
  for i = 1, n do call('ZREM', KEYS[2 + i], id) end
  call('DEL', KEYS[2])
  return { 'expired' }
end
local last, epoch, lined = read_sys(seen[2])
local f = next_fence(last)
write_sys(KEYS[1], f, epoch > 0 and epoch or now, lined)
f = str(f)
local mark = rec.mark or '='
write_record(KEYS[2], keyttl, { s = 'A', f = f, g = str(grant), o = owner, c = str(x - maxhold), x = str(x), n = '=', v = over,
  mark = mark, about = ARGV[10 + n] })
place()
return { over, f, str(x - now), mark }
