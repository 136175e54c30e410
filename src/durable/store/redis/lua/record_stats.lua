-- Adds the runs of a process to the statistics of the current minute and of the current hour. If the server is out of memory, this adds
-- nothing.
--
-- Needs no part.
-- KEYS: NONE, META, STATS.
--
-- ARGV[1] -> reporter 8
-- ARGV[2] -> number of the report
-- ARGV[3] -> runs, as in a row of `stats`
--
-- Output: OK, even if the report was recorded before
--
-- Fields of `stats`:
--
-- m<minute>, h<hour> -> runs, for each type: length of the next three fields 2; length of the name of the queue 1; name of the queue; name
--   of the type; numbers of runs that started, were done, retried, died, and were cancelled, 6 each; total duration of the ended runs in
--   microseconds 7
-- r<reporter> -> number of its last report 6, time of that report 6
--
-- A row has at most MAX_STAT_TYPES types. All other types are counted together, with empty names.
local NUMBERS, NUMBERS_LENGTH, OTHERS = '>I6I6I6I6I6I7', 37, '\0'

-- Calls a function with the names of each type of a row, and a table of its numbers. Returns `false` if the row cannot be read.
local function each_type(row, choose)
  local at = 1
  while at <= #row do
    local length = #row > at and number_at('>I2', row, at) or 0
    local last = at + 2 + length + NUMBERS_LENGTH - 1
    if length == 0 or last > #row then return false end
    choose(sub(row, at + 2, at + 1 + length), { number_at(NUMBERS, row, at + 2 + length) })
    at = last + 1
  end
  return true
end

-- Returns the row with the runs added to it. A row that cannot be read is replaced.
local function with_runs(row)
  local types, runs, n
  local function begin() types, runs, n = {}, {}, 0 end
  local function add(names, numbers)
    if names ~= OTHERS and not runs[names] then
      if n >= MAX_STAT_TYPES then names = OTHERS else n = n + 1 end
    end
    local before = runs[names]
    if not before then
      types[#types + 1], runs[names] = names, numbers
    else
      for i = 1, 6 do before[i] = before[i] + numbers[i] end
    end
  end
  begin()
  if not each_type(row, add) then begin() end
  each_type(ARGV[3], add)
  for i, names in ipairs(types) do
    local it = runs[names]
    for k = 1, 6 do it[k] = math.min(it[k], k < 6 and 2 ^ 48 - 1 or 2 ^ 53) end
    types[i] = pack('>I2', #names) .. names .. pack(NUMBERS, it[1], it[2], it[3], it[4], it[5], it[6])
  end
  return concat(types)
end

local fields = { 'r' .. ARGV[1], 'm' .. math.floor(now / 60000), 'h' .. math.floor(now / 3600000) }
local rows, number = call('HMGET', STATS, unpack(fields)), tonumber(ARGV[2])
local last = rows[1] and #rows[1] == 12 and number_at('>I6', rows[1]) or 0
if number <= last then return 'OK' end
-- This is one command, so the report is recorded as a whole or not at all.
call('HSET', STATS, fields[1], pack('>I6I6', number, now), fields[2], with_runs(rows[2] or ''), fields[3], with_runs(rows[3] or ''))
return 'OK'
