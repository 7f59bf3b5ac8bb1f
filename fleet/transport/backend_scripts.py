"""Lua scripts of the backend: each is one atomic step. `backend.py` has the layout of the keys."""

from __future__ import annotations

#: KEYS: resource, index. ARGV: body, TTL in ms, name. Writes an instance's resource with a real expiry.
PUT_INSTANCE = """
local now = redis.call('TIME')
local at = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[2], at + ARGV[2], ARGV[3])
return 1
"""

#: KEYS: resource, index. ARGV: name. Deletes an instance's resource.
DELETE_INSTANCE = """
redis.call('ZREM', KEYS[2], ARGV[1])
return redis.call('DEL', KEYS[1])
"""

#: KEYS: index. ARGV: prefix of resources. Returns every unexpired resource, ordered by name.
LIST_INSTANCES = """
local now = redis.call('TIME')
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. (now[1] * 1000 + math.floor(now[2] / 1000)))
local names = redis.call('ZRANGE', KEYS[1], 0, -1)
table.sort(names)
local found = {}
for _, name in ipairs(names) do
  local body = redis.call('GET', ARGV[1] .. name)
  if body then
    found[#found + 1] = name
    found[#found + 1] = body
  end
end
return found
"""

#: KEYS: resource, epoch, revision, by revision, by expiry, removed, networking config.
#: ARGV: body, TTL in ms, id, epoch if none exists.
#: Writes an agent's resource with a real expiry and the next revision; removes some expired agents.
#: Returns the revisions of the agent and of the networking config, so that a heartbeat needs only one call.
PUT_AGENT = """
local now = redis.call('TIME')
local at = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('SET', KEYS[2], ARGV[4], 'NX')
local revision = redis.call('INCR', KEYS[3])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[4], revision, ARGV[3])
redis.call('ZADD', KEYS[5], at + ARGV[2], ARGV[3])
redis.call('ZREM', KEYS[6], ARGV[3])
local expired = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', '(' .. at, 'LIMIT', 0, 50)
for _, id in ipairs(expired) do
  redis.call('ZREM', KEYS[4], id)
  redis.call('ZREM', KEYS[5], id)
end
return {revision, redis.call('HGET', KEYS[7], 'revision') or ''}
"""

#: KEYS: resource, revision, by revision, by expiry, removed, floor. ARGV: id, number of removals to remember.
#: Deletes an agent's resource before its expiry; forgetting the oldest removals raises the floor.
DELETE_AGENT = """
if redis.call('DEL', KEYS[1]) == 0 then return 0 end
local revision = redis.call('INCR', KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('ZADD', KEYS[5], revision, ARGV[1])
local excess = redis.call('ZCARD', KEYS[5]) - ARGV[2]
if excess > 0 then
  local oldest = redis.call('ZPOPMIN', KEYS[5], excess)
  redis.call('SET', KEYS[6], oldest[#oldest])
end
return revision
"""

#: KEYS: epoch, revision, by revision, removed, floor. ARGV: epoch and revision of the reader, limit, a new epoch,
#: prefix of resources, maximum bytes of all resources (the first is always read). Returns epoch, revision reached,
#: full, more, removed ids, then body and remaining ms of each agent.
LIST_AGENTS = """
redis.call('SET', KEYS[1], ARGV[4], 'NX')
local epoch = redis.call('GET', KEYS[1])
local head = tonumber(redis.call('GET', KEYS[2]) or '0')
local floor = tonumber(redis.call('GET', KEYS[5]) or '0')
local since, limit = tonumber(ARGV[2]), tonumber(ARGV[3])
local full = epoch ~= ARGV[1] or since < floor or since > head or since == 0
if full then since = 0 end
local changed = redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. since, '+inf', 'WITHSCORES', 'LIMIT', 0, limit + 1)
local reached, more = head, 0
if #changed > 2 * limit then
  reached, more = tonumber(changed[2 * limit]), 1
end
local agents, size = {}, 0
for at = 1, math.min(#changed, 2 * limit), 2 do
  local key = ARGV[5] .. changed[at]
  local left = redis.call('PTTL', key)
  if left > 0 then
    local body = redis.call('GET', key)
    size = size + #body
    if #agents > 0 and size > tonumber(ARGV[6]) then
      reached, more = tonumber(changed[at - 1]), 1
      break
    end
    agents[#agents + 1] = body
    agents[#agents + 1] = left
  end
end
local removed = {}
if not full then
  removed = redis.call('ZRANGEBYSCORE', KEYS[4], '(' .. since, reached)
end
local answer = {epoch, reached, full and 1 or 0, more, removed}
for _, part in ipairs(agents) do
  answer[#answer + 1] = part
end
return answer
"""

#: KEYS: resource. ARGV: body, revision, condition (any, absent, is), required revision.
#: Writes a singleton if the condition holds; returns 1 if it was written.
PUT_SINGLETON = """
local held = redis.call('HGET', KEYS[1], 'revision')
if ARGV[3] == 'absent' and held then return 0 end
if ARGV[3] == 'is' and held ~= ARGV[4] then return 0 end
redis.call('HSET', KEYS[1], 'body', ARGV[1], 'revision', ARGV[2])
return 1
"""
