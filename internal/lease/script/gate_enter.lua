-- KEYS: gate of the operation, the tenant's share.
-- ARGV: probe ms, share per minute (0 = none), burst, the probe's pass.
local g = call('HMGET', KEYS[1], 's', 'u', 'why', 'limited')
local untl = tonumber(g[2] or '0')
if g[1] == 'closed' or g[1] == 'probing' then
  if now < untl then
    local wait = untl - now
    if g[1] == 'probing' then wait = math.min(wait, 1000) end
    return { 'closed', str(wait), g[3] or '' }
  end
  call('HSET', KEYS[1], 's', 'probing', 'u', str(now + tonumber(ARGV[1])), 'p', ARGV[4])
  call('PEXPIRE', KEYS[1], 3600000)
  return { 'probe', '0', g[3] or '' }
end
local rate, burst = tonumber(ARGV[2]), tonumber(ARGV[3])
if rate > 0 and tonumber(g[4] or '0') > now then
  local b = call('HMGET', KEYS[2], 'n', 't')
  local tokens = tonumber(b[1] or ARGV[3])
  tokens = math.min(burst, tokens + (now - tonumber(b[2] or str(now))) * rate / 60000)
  if tokens < 1 then return { 'closed', str(math.ceil((1 - tokens) * 60000 / rate)), 'share' } end
  call('HSET', KEYS[2], 'n', string.format('%.6f', tokens - 1), 't', str(now))
  call('PEXPIRE', KEYS[2], 600000)
  return { 'open', '0', 'shared' }
end
return { 'open', '0', '' }
