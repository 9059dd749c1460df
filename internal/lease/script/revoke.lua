-- KEYS: record, n scopes, n lines.
-- ARGV: id, mark, now (1) or mark only (0), key ttl, tombstone ms, call ms, channel, n.
local id, n = ARGV[1], tonumber(ARGV[8])
local live = false
for i = 1, n do
  if alive(KEYS[1 + i], id) then live = true end
end
local rec = read_record(call('GET', KEYS[1]))
if rec.s ~= 'A' or not live then return { 'not_found' } end
rec.mark = ARGV[2]
if ARGV[3] == '1' then
  for i = 1, n do call('ZREM', KEYS[1 + i], id) end
  rec.s = 'X'
  write_record(KEYS[1], ARGV[5], rec)
  call_next(2 + n, 1 + 2 * n, tonumber(ARGV[6]), ARGV[7])
else
  write_record(KEYS[1], ARGV[4], rec)
end
call('PUBLISH', ARGV[7], 'revoked ' .. id)
return { 'ok' }
