-- Returns claimed tasks to the lists and sublists that a scan has read.
--
-- Needs: undo/begin.
-- Defines: undo.claim.
local function restore_scan(scan)
  local key = scan.key
  if not scan.length then
    if #scan.scanned > 0 and not has_entries(key, scan.group, 0, scan.scanned) then try_all('LPUSH', key, reversed(scan.scanned)) end
    return
  end
  for id, tombstone in pairs(scan.tombstones_by_id) do
    if tombstone.left < tombstone.before then try('HSET', TOMBSTONES, id, tombstone.before) end
  end
  if scan.removed > 0 then try('HSET', META, 'tombstones', scan.tombstones) end
  try_all('SADD', QUARANTINED, scan.quarantined)
  local missing = scan.length - try('LLEN', key)
  if missing <= 0 then return end
  if missing == #scan.scanned - #scan.passed then try('LTRIM', key, #scan.passed, -1) end
  try_all('LPUSH', key, reversed(scan.scanned))
end

function undo.claim()
  restore_session()
  for _, scan in ipairs(u.choice and u.choice.scans or {}) do restore_scan(scan) end
  if not u.choice and #u.entries > 0 and not has_entries(u.key, '', 0, u.entries) then
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
  for _, sublist in ipairs(u.choice and u.choice.sublists or {}) do
    local key = PERMITS .. ':' .. u.queue .. '\0' .. sublist.group
    try_all('SREM', key, sublist.ids)
  end
  if u.rate then try('HSET', QUEUES, 'r' .. u.queue, u.rate[1]) end
  if u.turns and u.turns[1] ~= '' then try('HSET', QUEUES, 'p' .. u.queue, u.turns[1])
  elseif u.turns then try('HDEL', QUEUES, 'p' .. u.queue) end
end
