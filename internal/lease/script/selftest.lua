-- Proves that this server runs what the leases need: TIME in a script that
-- writes, and 16 digits kept.
if str(1234567890123456) ~= '1234567890123456' or now < 1000000000000 then return { 'bad' } end
call('SET', KEYS[1], str(now), 'PX', 1000)
return { 'ok', str(now) }
