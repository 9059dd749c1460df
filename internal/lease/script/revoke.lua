-- KEYS: record, n scopes, n lines.
-- ARGV: id, why, by, now (1) or mark (0), tombstone ms, call ms, channel, n.
local id, n = ARGV[1], tonumber(ARGV[8])
local live = false
for i = 1, n do
  if alive(KEYS[1 + i], id) then live = true end
end
if call('HGET', KEYS[1], 's') ~= 'A' or not live then return { 'not_found' } end
call('HSET', KEYS[1], 'mw', ARGV[2], 'mb', ARGV[3])
if ARGV[4] == '1' then
  for i = 1, n do call('ZREM', KEYS[1 + i], id) end
  call('HSET', KEYS[1], 's', 'X')
  call('PEXPIRE', KEYS[1], ARGV[5])
  call_next(2 + n, 1 + 2 * n, tonumber(ARGV[6]), ARGV[7])
end
call('PUBLISH', ARGV[7], 'revoked ' .. id)
return { 'ok' }
