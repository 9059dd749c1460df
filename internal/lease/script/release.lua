-- KEYS: record, n scopes, n lines.
-- ARGV: id, fence, tombstone ms (0 = clean), call ms, channel, n.
local id, fence = ARGV[1], tonumber(ARGV[2])
local tomb, callms, channel, n = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])

local rec = call('HMGET', KEYS[1], 's', 'f', 'g')
-- A younger grant is another holder's. An older one, or a fence between its
-- grant and its latest reattachment, is the caller's own or one it superseded.
if rec[1] == 'X' then return { 'revoked' } end
if rec[1] == 'R' then return { 'not_held' } end
if rec[1] == 'A' and tonumber(rec[3]) > fence then return { 'transferred' } end

local live = false
for i = 1, n do
  if not live and alive(KEYS[1 + i], id) then live = true end
  call('ZREM', KEYS[1 + i], id)
end
if tomb > 0 then
  -- A heartbeat of this lease may still be on its way: it must find this.
  pcall(function()
    call('DEL', KEYS[1])
    call('HSET', KEYS[1], 's', 'R', 'f', str(fence), 'g', rec[3] or str(fence))
    call('PEXPIRE', KEYS[1], tomb)
  end)
else
  call('DEL', KEYS[1])
end
if not live then return { 'not_held' } end
call_next(2 + n, 1 + 2 * n, callms, channel)
return { 'released' }
