-- KEYS: sys, record, n scopes. ARGV: see renewArgs.
-- The grant (the fence of the last acquire) names the holder: a holder whose
-- reattaching answer was lost still knows its grant, and after a loss of data
-- the younger grant wins over an older holder that came back first.
local id, grant, owner = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local ttl, keyttl = tonumber(ARGV[4]), ARGV[5]
local maxhold, remain = tonumber(ARGV[6]), tonumber(ARGV[7])
local strict, n = ARGV[8] == '1', tonumber(ARGV[9])

local rec = call('HMGET', KEYS[2], 's', 'f', 'g', 'x', 'mw', 'mb')
local mine = false
if rec[1] == 'X' then return { 'revoked', rec[5] or '', rec[6] or '' } end
if rec[1] then
  local theirs = tonumber(rec[3])
  if theirs > grant then return { 'transferred' } end
  mine = theirs == grant
  if mine and rec[1] == 'R' then return { 'released' } end
end

local x = now + remain
if mine then x = tonumber(rec[4]) end
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
  return { 'held', rec[2], str(x - now), rec[5] or '', rec[6] or '' }
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
if call('HEXISTS', KEYS[1], 'e') == 0 then call('HSET', KEYS[1], 'e', str(now)) end
local f = next_fence(KEYS[1], call('HGET', KEYS[1], 'f'))
call('HSET', KEYS[2], 's', 'A', 'f', f, 'g', str(grant), 'o', owner, 'c', str(x - maxhold), 'x', str(x),
  'v', over, unpack(ARGV, 10 + n))
place()
return { over, f, str(x - now), rec[5] or '', rec[6] or '' }
