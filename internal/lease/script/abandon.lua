-- Takes back an acquire whose answer never came, also one that has not
-- arrived yet. KEYS: nonce tombstone, record, n scopes, n lines.
-- ARGV: id, nonce, tombstone ms, call ms, channel, n.
local id, nonce, n = ARGV[1], ARGV[2], tonumber(ARGV[6])
call('SET', KEYS[1], '1', 'PX', ARGV[3])
local rec = read_record(call('GET', KEYS[2]))
-- Only a slot that this call itself added: what it took over, or had to have,
-- belongs to a command that runs.
if rec.s ~= 'A' or rec.n ~= nonce or rec.v ~= 'granted' then return { 'not_held' } end
for i = 1, n do call('ZREM', KEYS[2 + i], id) end
call('DEL', KEYS[2])
call_next(3 + n, 2 + 2 * n, tonumber(ARGV[4]), ARGV[5])
return { 'released' }
