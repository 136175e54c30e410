-- The beginning of every script: short names, the time, and a check of the layout. If the layout is damaged, its copy
-- counts: `open.lua` refuses a layout that is not a number, and maintenance writes it again.
--
-- The lines before this part set `micros`.
--
-- Errors:
-- LAYOUT <found> <known> -> this process does not know the layout; `known` is the newest that it knows
-- UNDONE <error>         -> the layout cannot be read
--
-- Needs no other part. Uses the variable `micros`, which the lines before this part set.
-- Defines: call, concat, sub, byte, char, pack, number_at, now, BASE, meta.
local call, concat = redis.call, table.concat
local sub, byte, char = string.sub, string.byte, string.char
local pack, number_at = struct.pack, struct.unpack
local now = math.floor(micros / 1000)
local BASE = sub(META, 1, -5)

local meta = redis.pcall('HMGET', META, 'layout', 'routes', 'census', 'epoch', 'tombstones', 'schedules', 'aged', 'steps')
if meta.err then return redis.error_reply('UNDONE ' .. meta.err) end
if tonumber(meta[1] or '') ~= LAYOUT then
  local found = string.match(meta[1] or '', '^%d+$') or string.match(call('HGET', META, 'layout_copy') or '', '^%d+$')
  if found and (tonumber(found) < OLDEST_LAYOUT or tonumber(found) > LAYOUT) then
    return redis.error_reply('LAYOUT ' .. found .. ' ' .. LAYOUT)
  end
end
