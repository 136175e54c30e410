-- Reads statistics: see `record_stats.lua`.
--
-- Needs no part.
-- KEYS: NONE, META, STATS.
--
-- ARGV[1] -> "m" to read minutes, "h" to read hours
-- ARGV[2] -> length of a minute or an hour in milliseconds
-- ARGV[3] -> number of minutes or hours that are kept
-- ARGV[4] -> first minute or hour, or empty
-- ARGV[5] -> time in milliseconds, to read only minutes or hours that have begun within it, or empty
-- ARGV[6] -> minute or hour after the last one, or empty
--
-- Output:
-- [1]   -> time in milliseconds
-- [2]   -> minute or hour at which the next page begins, or empty
-- [3..] -> minutes or hours, each followed by its row
local MAX_BYTES, PER_READ = 262144, 16
local length, kept = tonumber(ARGV[2]), tonumber(ARGV[3])
local stop = math.floor(now / length) + 1
local at = math.max(stop - kept, 0)
if ARGV[4] ~= '' then at = math.max(at, tonumber(ARGV[4])) end
if ARGV[5] ~= '' then at = math.max(at, math.floor((now - tonumber(ARGV[5])) / length) + 1) end
if ARGV[6] ~= '' then stop = math.min(stop, tonumber(ARGV[6])) end
local answer, bytes = { now, '' }, 0
while at < stop and bytes < MAX_BYTES do
  local fields = {}
  for bucket = at, math.min(at + PER_READ, stop) - 1 do fields[#fields + 1] = ARGV[1] .. bucket end
  for i, row in ipairs(call('HMGET', STATS, unpack(fields))) do
    if row then
      answer[#answer + 1], answer[#answer + 2] = at + i - 1, row
      bytes = bytes + #row
    end
  end
  at = at + #fields
end
if at < stop then answer[2] = tostring(at) end
return answer
