-- Shared head of every lease script. Time is the server's, in ms, so that no
-- worker's clock can shorten or stretch anybody's lease.
local call = redis.call
local T = call('TIME')
local now = tonumber(T[1]) * 1000 + math.floor(tonumber(T[2]) / 1000)

-- tostring keeps 14 digits in Redis and a fence has 16; the format keeps all.
local function str(n) return string.format('%.0f', n) end

-- What every acquire reads stands in one string, because each call costs more
-- than the bytes: the last fence, the epoch (first use after an empty start),
-- and until when some line may hold somebody.
local function read_sys(s)
  local f, e, w = string.match(s or '', '^(%d+) (%d+) (%d+)$')
  return tonumber(f or '0'), tonumber(e or '0'), tonumber(w or '0')
end

local function write_sys(key, f, e, w) call('SET', key, str(f) .. ' ' .. str(e) .. ' ' .. str(w)) end

-- The clock is the floor of the fence: it stays ahead of what was granted
-- before the server lost its data, where a counter would begin again at 1.
local function next_fence(last)
  return math.max(last + 1, tonumber(T[1]) * 1000000 + tonumber(T[2]))
end

-- A record is one string too: state (A held, R released, X revoked), fence,
-- grant, owner, created, until, nonce, verdict, an operator's mark ('=' for
-- none), and what only the client reads.
local function read_record(s)
  if not s then return {} end
  local r = {}
  r.s, r.f, r.g, r.o, r.c, r.x, r.n, r.v, r.mark, r.about =
    string.match(s, '^(%S) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (.*)$')
  return r
end

local function write_record(key, keyttl, r)
  call('SET', key, r.s .. ' ' .. r.f .. ' ' .. r.g .. ' ' .. r.o .. ' ' .. r.c .. ' ' .. r.x .. ' ' .. r.n .. ' ' ..
    r.v .. ' ' .. r.mark .. ' ' .. r.about, 'PX', keyttl)
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

local function call_first(w, callms, channel)
  local waiting = line(w, '')
  if waiting[1] then call_waiter(w, waiting[1], callms, channel) end
end

-- One freed slot calls one waiter per line. Under pcall: a release must work
-- when the server is out of memory, and a call is only an accelerator.
local function call_next(first, last, callms, channel)
  if last < first or call('EXISTS', unpack(KEYS, first, last)) == 0 then return end
  for i = first, last do pcall(call_first, KEYS[i], callms, channel) end
end

-- Whoever leaves a line after being called passes the call on.
local function leave(w, me, callms, channel)
  local mine = call('HGET', w, me)
  if not mine then return end
  call('HDEL', w, me)
  if tonumber(string.match(mine, '(%S+)$')) > now then call_first(w, callms, channel) end
end
