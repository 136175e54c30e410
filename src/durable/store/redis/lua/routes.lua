-- Reads the routes, or replaces them if they have not changed since they were read and some lists are empty. These are the
-- lists that are no longer named, and the shared lists that were not named before: entries in the latter belong to routes
-- that are lost.
--
-- Needs: base, lists.
-- ARGV: 1 the version that was read, or empty to read them; 2 e, the number of lists that must be empty; 3 p, of
-- pairs; 4 d, of fields; 5 the set whose sessions read only the main list, if it is the only one; 6 whether everything else
-- is removed, 0 or 1; then e ids; p times (field, value) to be set; d fields to be removed. A field n<set> among these must
-- be zero.
-- Result of reading: the version, the text, and whether no change has ended half-way. Result of replacing: OK; CHANGED if
-- the version is another; LIVE if a set has a session; or the ids of lists that are not empty.
local written = string.match(call('HGET', ROUTES, 'version') or '', '^%d%d%d%d%d%d%d%d$') or NO_ROUTES
if ARGV[1] == '' then return { written, call('HGET', ROUTES, 'text') or '', version == written and 1 or 0 } end
if ARGV[1] ~= written then return 'CHANGED' end
local empty, rows, fields = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local full = {}
for i = 7, 6 + empty do
  local key = key_of(ARGV[i])
  if call('EXISTS', key) == 1 then full[#full + 1] = ARGV[i] end
end
if #full > 0 then return full end
local at = 7 + empty
for i = at + 2 * rows, at + 2 * rows + fields - 1 do
  if sub(ARGV[i], 1, 1) == 'n' and tonumber(call('HGET', ROUTES, ARGV[i]) or '0') > 0 then return 'LIVE' end
end

-- The version comes last. Until then, what reads the routes finds those that were there, or some of both: so nobody
-- believes that they are known.
call('ZREM', LEASE, '')
call('HDEL', META, 'routes')
if ARGV[6] == '1' then
  for _, field in ipairs(call('HKEYS', ROUTES)) do
    if sub(field, 1, 1) ~= 'n' and field ~= 'version' then call('HDEL', ROUTES, field) end
  end
end
for i = at, at + 2 * rows - 1, 2 do call('HSET', ROUTES, ARGV[i], ARGV[i + 1]) end
at = at + 2 * rows
for i = at, at + fields - 1 do
  call('HDEL', ROUTES, ARGV[i])
  if sub(ARGV[i], 1, 1) == 'n' then
    local key = IDLE .. ':' .. sub(ARGV[i], 2)
    call('ZREMRANGEBYRANK', key, 0, -1)
  end
end
-- After the version was lost, versions continue from the time, since a client may still know routes of an earlier version.
local last = written == NO_ROUTES and math.floor(now / 1000) or tonumber(written)
local next = string.format('%08d', last % 99999999 + 1)
call('HSET', ROUTES, 'version', next)
call('HSET', META, 'routes', next .. ARGV[5])
return 'OK'
