-- KEYS: runs of one user. ARGV: run, limit, window ms. Once per run.
local window = tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', str(now - window))
if redis.call('ZSCORE', KEYS[1], ARGV[1]) then return { 'ok' } end
local over = redis.call('ZCARD', KEYS[1]) - tonumber(ARGV[2])
if over >= 0 then
  local oldest = redis.call('ZRANGE', KEYS[1], over, over, 'WITHSCORES')
  return { 'over', str((tonumber(oldest[2] or str(now))) + window - now) }
end
redis.call('ZADD', KEYS[1], str(now), ARGV[1])
redis.call('PEXPIRE', KEYS[1], str(window))
return { 'ok' }
