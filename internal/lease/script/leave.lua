-- Leaves every line. KEYS: parked-by-tenant, n lines. ARGV: id, call ms, channel.
call('ZREM', KEYS[1], ARGV[1])
for i = 2, #KEYS do
  local mine = call('HGET', KEYS[i], ARGV[1])
  if mine then
    call('HDEL', KEYS[i], ARGV[1])
    local called = tonumber(string.match(mine, '(%S+)$'))
    if called > now then call_next(i, i, tonumber(ARGV[2]), ARGV[3]) end
  end
end
return { 'ok' }
