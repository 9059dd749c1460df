-- KEYS: runs of one user. ARGV: run, limit, window ms. Once per run.
local window = tonumber(ARGV[3])
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', str(now - window))
if call('ZSCORE', KEYS[1], ARGV[1]) then return { 'ok' } end
local over = call('ZCARD', KEYS[1]) - tonumber(ARGV[2])
if over >= 0 then
  local oldest = call('ZRANGE', KEYS[1], over, over, 'WITHSCORES')
  return { 'over', str((tonumber(oldest[2] or str(now))) + window - now) }
end
call('ZADD', KEYS[1], str(now), ARGV[1])
call('PEXPIRE', KEYS[1], str(window))
return { 'ok' }
