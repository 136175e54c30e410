-- Stores the progress of running tasks. Refuses the reports of runs that do not hold their tasks. An earlier report of a run never
-- replaces a later one. If the server is out of memory, no report is stored.
--
-- Needs no part.
-- KEYS: NONE, META, RUNNING, PROGRESS.
--
-- ARGV[1]   -> number of reports, n
-- ARGV[2..] -> n ids; n rows of `progress`
--
-- Output: positions of the refused reports, from 1
local n, rows, refused, written = tonumber(ARGV[1]), {}, {}, {}
if n == 0 then return refused end
local ids = { unpack(ARGV, 2, 1 + n) }
local running = call('HMGET', RUNNING, unpack(ids))
for i, row in ipairs(call('HMGET', PROGRESS, unpack(ids))) do rows[ids[i]] = row end

-- Returns `true` if a row contains the same report, or a later one of the same run. The task is held under the epoch of the report, so a
-- row with another epoch is that of an earlier run.
local function is_later(row, report)
  return row and #row >= PROGRESS_NUMBER_END and sub(row, 1, PROGRESS_EPOCH_END) == sub(report, 1, PROGRESS_EPOCH_END)
    and number_at('>I6', row, PROGRESS_NUMBER) >= number_at('>I6', report, PROGRESS_NUMBER)
end

for i, id in ipairs(ids) do
  local report = ARGV[1 + n + i]
  if sub(running[i] or '', 1, RUNNING_EPOCH_END) ~= sub(report, 1, PROGRESS_EPOCH_END) then
    refused[#refused + 1] = i
  elseif not is_later(rows[id], report) then
    rows[id], written[#written + 1], written[#written + 2] = report, id, report
  end
end
if #written > 0 then call('HSET', PROGRESS, unpack(written)) end
return refused
