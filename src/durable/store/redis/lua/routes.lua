-- Reads the routes, or replaces them if they have not changed since they were read and some lists are empty. These are the
-- lists that are no longer named, and the shared lists that were not named before: entries in the latter belong to lost
-- routes.
--
-- Needs: lists.
-- KEYS: NONE, META, ROUTES, READY, LEASE, TOMBSTONES, IDLE, QUEUES, PERMITS, GROUPS.
--
-- ARGV[1]   -> version that was read, or empty to read the routes
-- ARGV[2]   -> number of lists that must be empty, e
-- ARGV[3]   -> number of fields to set, p
-- ARGV[4]   -> number of fields to remove, d
-- ARGV[5]   -> the only set, if its sessions read only the main list, or empty
-- ARGV[6]   -> 1 to remove all other fields, else 0
-- ARGV[7..] -> e lists; p times (field, value); d fields. A field n<set> among the last must be zero.
--
-- Output when reading:
-- [1] -> version
-- [2] -> text
-- [3] -> 1 if no change has stopped half-way, else 0
--
-- Output when replacing: OK; CHANGED if the version is another; LIVE if a set has a session; or the lists that are not
-- empty
local written = string.match(call('HGET', ROUTES, 'version') or '', '^%d%d%d%d%d%d%d%d$') or NO_ROUTES
if ARGV[1] == '' then return { written, call('HGET', ROUTES, 'text') or '', version == written and 1 or 0 } end
if ARGV[1] ~= written then return 'CHANGED' end
local empty, rows, fields = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local full = {}
for i = 7, 6 + empty do
  local key = key_of(ARGV[i])
  if lists().may_have_entries(ARGV[i], key) then full[#full + 1] = ARGV[i] end
end
if #full > 0 then return full end
local at = 7 + empty
for i = at + 2 * rows, at + 2 * rows + fields - 1 do
  if sub(ARGV[i], 1, 1) == 'n' and tonumber(call('HGET', ROUTES, ARGV[i]) or '0') > 0 then return 'LIVE' end
end

-- The version is written last. Until then, readers may find a mixture of old and new routes; without a version in `meta`,
-- they do not trust them.
call('ZREM', LEASE, '')
call('HDEL', META, 'routes')
if ARGV[6] == '1' then
  for _, field in ipairs(call('HKEYS', ROUTES)) do
    if sub(field, 1, 1) ~= 'n' and field ~= 'version' then call('HDEL', ROUTES, field) end
  end
end
local first = at
for i = at, at + 2 * rows - 1, 2 do call('HSET', ROUTES, ARGV[i], ARGV[i + 1]) end
at = at + 2 * rows
for i = at, at + fields - 1 do
  call('HDEL', ROUTES, ARGV[i])
  if sub(ARGV[i], 1, 1) == 'n' then
    local key = IDLE .. ':' .. sub(ARGV[i], 2)
    call('ZREMRANGEBYRANK', key, 0, -1)
  end
end
-- If the version was lost, the next one is derived from the time, since a client may still know routes of an earlier
-- version.
local last = written == NO_ROUTES and math.floor(now / 1000) or tonumber(written)
local next = string.format('%08d', last % 99999999 + 1)
call('HSET', ROUTES, 'version', next)
call('HSET', META, 'routes', next .. ARGV[5])
-- After a resume, idle sessions may have work in lists that they did not read before. After a pause, a session that was
-- woken for tasks in a list may no longer read it. If this fails, idle workers find the tasks when they poll.
pcall(function()
  for i = first, first + 2 * rows - 1, 2 do
    local list = string.match(ARGV[i], '^l(%x+)$')
    local key = list and key_of(list)
    if key and lists().is_any_in(list, key) then wake(list, 1, ARGV[i + 1]) end
  end
end)
return 'OK'
