-- KEYS: sys, record, n scopes, n lines.
-- ARGV: id, fence, tombstone ms (0 = clean), call ms, channel, n.
local id, fence = ARGV[1], tonumber(ARGV[2])
local tomb, callms, channel, n = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])

local seen = call('MGET', KEYS[2], KEYS[1])
local rec = read_record(seen[1])
-- A younger grant is another holder's. An older one, or a fence between its
-- grant and its latest reattachment, is the caller's own or one it superseded.
if rec.s == 'X' then return { 'revoked' } end
if rec.s == 'R' then return { 'not_held' } end
if rec.s == 'A' and tonumber(rec.g) > fence then return { 'transferred' } end

local live = false
for i = 1, n do
  if not live and alive(KEYS[2 + i], id) then live = true end
  call('ZREM', KEYS[2 + i], id)
end
call('DEL', KEYS[2])
if tomb > 0 then
  -- A heartbeat of this lease may still be on its way: it must find this.
  -- Under pcall: a release must work when the server is out of memory.
  pcall(write_record, KEYS[2], ARGV[3], { s = 'R', f = str(fence), g = rec.g or str(fence), o = '=', c = '0', x = '0',
    n = '=', v = '=', mark = '=', about = '' })
end
if not live then return { 'not_held' } end
local _, _, lined = read_sys(seen[2])
if lined > now then call_next(3 + n, 2 + 2 * n, callms, channel) end
return { 'released' }
