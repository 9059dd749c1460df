package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// shiftScript makes d ms pass for everything stored: expiries and births move
// back. It stands in for a server clock that no test can turn.
var shiftScript = redis.NewScript(`
local d = tonumber(ARGV[1])
local fmt = function(n) return string.format('%.0f', n) end
for _, k in ipairs(redis.call('KEYS', '*')) do
  if string.find(k, ':z:', 1, true) then
    local m = redis.call('ZRANGE', k, 0, -1, 'WITHSCORES')
    for i = 1, #m, 2 do redis.call('ZADD', k, fmt(tonumber(m[i + 1]) - d), m[i]) end
  elseif string.find(k, ':r:', 1, true) then
    local head, c, x, tail = string.match(redis.call('GET', k), '^(%S %S+ %S+ %S+) (%S+) (%S+) (.*)$')
    redis.call('SET', k, head .. ' ' .. fmt(tonumber(c) - d) .. ' ' .. fmt(tonumber(x) - d) .. ' ' .. tail, 'KEEPTTL')
  elseif string.sub(k, -2) == ':s' then
    local f, e, w = string.match(redis.call('GET', k), '^(%S+) (%S+) (%S+)$')
    redis.call('SET', k, f .. ' ' .. fmt(math.max(tonumber(e) - d, 1)) .. ' ' .. fmt(math.max(tonumber(w) - d, 0)))
  elseif string.find(k, ':w:', 1, true) then
    local all = redis.call('HGETALL', k)
    for i = 1, #all, 2 do
      local o, e, c = string.match(all[i + 1], '^(%S+) (%S+) (%S+)$')
      if tonumber(c) > 0 then c = fmt(math.max(tonumber(c) - d, 1)) end
      redis.call('HSET', k, all[i], o .. ' ' .. fmt(tonumber(e) - d) .. ' ' .. c)
    end
  elseif string.find(k, ':gate:', 1, true) then
    for _, f in ipairs({'u', 'w', 'limited'}) do
      local v = redis.call('HGET', k, f)
      if v then redis.call('HSET', k, f, fmt(tonumber(v) - d)) end
    end
  elseif string.find(k, ':share:', 1, true) then
    local v = redis.call('HGET', k, 't')
    if v then redis.call('HSET', k, 't', fmt(tonumber(v) - d)) end
  elseif string.find(k, ':b:', 1, true) then
    local m = redis.call('ZRANGE', k, 0, -1, 'WITHSCORES')
    for i = 1, #m, 2 do redis.call('ZADD', k, fmt(tonumber(m[i + 1]) - d), m[i]) end
  end
end
return 1`)

// clock is a process clock that a test moves along with the server's data.
type clock struct{ offset atomic.Int64 }

func (c *clock) Now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

// pass lets d go by for the stored data and for the clock, which may be nil.
func (s *server) pass(t testing.TB, c *clock, d time.Duration) {
	t.Helper()
	if err := shiftScript.Run(context.Background(), s.raw, nil, d.Milliseconds()).Err(); err != nil {
		t.Fatalf("shift: %v", err)
	}
	if c != nil {
		c.offset.Add(int64(d))
	}
}
