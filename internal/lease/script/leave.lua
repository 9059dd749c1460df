-- Leaves every line. KEYS: parked-by-tenant, n lines. ARGV: id, call ms, channel.
call('ZREM', KEYS[1], ARGV[1])
for i = 2, #KEYS do leave(KEYS[i], ARGV[1], tonumber(ARGV[2]), ARGV[3]) end
return { 'ok' }
