-- Dead letters, the newest first: those of some ids, or those from one place on. A letter: id, age,
-- reason, error, header of the entry, name.
--
-- ARGV: place or -1, how many, their ids.
local place, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local ids = place < 0 and slice(3, most)
  or call('ZREVRANGEBYSCORE', DIED, '+inf', '(' .. string.format('%.0f', now - DEAD_RETENTION), 'LIMIT', place, most)
local letters = {}
for _, id in ipairs(ids) do
  local since = tonumber(call('ZSCORE', DIED, id) or '-inf')
  if since + DEAD_RETENTION > now then
    local row = call('HGET', DEAD, id)
    local len = number_at('>I4', row, 2)
    local entry = sub(row, 6 + len)
    local inline = byte(entry, 47) == 1 and number_at('>I4', entry, 48) or 0
    letters[#letters + 1] = { id, now - since, byte(row), sub(row, 6, 5 + len), sub(entry, 1, 51), sub(entry, 52 + inline) }
  end
end
return letters
