-- Returns claimed tasks to their list.
local function restore_chosen()
  local c, key = u.choice, u.key
  for id, tombstone in pairs(c.tombstones_by_id) do
    if tombstone.left < tombstone.before then try('HSET', TOMBSTONES, id, tombstone.before) end
  end
  if c.removed > 0 then try('HSET', META, 'tombstones', c.tombstones) end
  try_all('SADD', QUARANTINED, c.quarantined)
  local missing = c.length - try('LLEN', key)
  if missing <= 0 then return end
  if missing == #c.scanned - #c.passed then try('LTRIM', key, #c.passed, -1) end
  try_all('LPUSH', key, reversed(c.scanned))
end

function undo.claim()
  restore_session()
  if u.choice and u.choice.length then
    restore_chosen()
  elseif not u.choice and #u.entries > 0 and not has_entries(u.key, 0, u.entries) then
    local key = u.key
    try_all('LPUSH', key, reversed(u.entries))
  end
  if #u.ids == 0 then return end
  try('HDEL', RUNNING, unpack(u.ids))
  try('HDEL', CLAIMS, u.epoch, u.epoch .. 'n', u.epoch .. 'o')
  try('ZREM', LEASE, u.epoch)
  try_all('HSET', HELD_KEYS, u.keys)
  if u.queue ~= '' then
    local key = PERMITS .. ':' .. u.queue
    try('SREM', key, unpack(u.ids))
  end
  if u.rate then try('HSET', QUEUES, 'r' .. u.queue, u.rate[1]) end
  if u.turns and u.turns[1] ~= '' then try('HSET', QUEUES, 'p' .. u.queue, u.turns[1])
  elseif u.turns then try('HDEL', QUEUES, 'p' .. u.queue) end
end
