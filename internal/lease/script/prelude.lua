-- Shared head of every lease script. Time is the server's, in ms, so that no
-- worker's clock can shorten or stretch anybody's lease.
local call = redis.call
local T = call('TIME')
local now = tonumber(T[1]) * 1000 + math.floor(tonumber(T[2]) / 1000)

-- tostring keeps 14 digits in Redis and a fence has 16; the format keeps all.
local function str(n) return string.format('%.0f', n) end

-- The clock is the floor of the fence: it stays ahead of what was granted
-- before the server lost its data, where a counter would begin again at 1.
local function next_fence(sys, last)
  local micros = tonumber(T[1]) * 1000000 + tonumber(T[2])
  local fence = math.max(tonumber(last or '0') + 1, micros)
  call('HSET', sys, 'f', str(fence))
  return str(fence)
end

-- Prunes at most 128 dead ids, so that a mass crash stalls nobody, and counts
-- the living.
local function in_use(z)
  local dead = call('ZRANGEBYSCORE', z, '-inf', str(now), 'LIMIT', 0, 128)
  if #dead > 0 then call('ZREM', z, unpack(dead)) end
  if #dead == 128 then return call('ZCOUNT', z, '(' .. str(now), '+inf') end
  return call('ZCARD', z)
end

local function alive(z, id)
  local score = call('ZSCORE', z, id)
  return score and tonumber(score) > now
end

-- A line of waiters is a hash: id -> "order expires called". A called waiter
-- has a slot reserved until its 'called' time; one that does not come by then
-- leaves the line (it stands again, in its old order, when it next asks).
-- Returns the uncalled ones in order, the reservations of others, and me.
local function line(w, me)
  local waiting, reserved, mine = {}, 0, nil
  local all = call('HGETALL', w)
  for i = 1, #all, 2 do
    local order, expires, called = string.match(all[i + 1], '^(%S+) (%S+) (%S+)$')
    local e = { id = all[i], order = tonumber(order), expires = tonumber(expires), called = tonumber(called) }
    if e.expires <= now or (e.called > 0 and e.called <= now) then
      call('HDEL', w, e.id)
    elseif e.id == me then
      mine = e
    elseif e.called > 0 then
      reserved = reserved + 1
    else
      waiting[#waiting + 1] = e
    end
  end
  table.sort(waiting, function(a, b)
    if a.order ~= b.order then return a.order < b.order end
    return a.id < b.id
  end)
  return waiting, reserved, mine
end

local function call_waiter(w, e, callms, channel)
  call('HSET', w, e.id, str(e.order) .. ' ' .. str(e.expires) .. ' ' .. str(now + callms))
  call('PUBLISH', channel, 'freed ' .. w .. ' ' .. e.id .. ' ' .. str(now))
end

-- One freed slot calls one waiter per line. Under pcall: a release must work
-- when the server is out of memory, and a call is only an accelerator.
local function call_next(first, last, callms, channel)
  if last < first or call('EXISTS', unpack(KEYS, first, last)) == 0 then return end
  for i = first, last do
    pcall(function()
      local waiting = line(KEYS[i], '')
      if waiting[1] then call_waiter(KEYS[i], waiting[1], callms, channel) end
    end)
  end
end
