-- Stores steps of running tasks. A step never changes.
--
-- Needs: steps.
-- KEYS: NONE, META, RUNNING, STEPS.
--
-- ARGV[1]   -> number of steps, n
-- ARGV[2..] -> n times: id of the task; epoch of the run; name; value
--
-- Output: for each step: `s` if it was stored; `f` and the value if the task has a step with this name; `r` if the task is not held under this
--   epoch; `x` if the task has too many steps
local answers, counts, ids = {}, {}, {}
for i = 1, tonumber(ARGV[1]) do ids[i] = ARGV[4 * i - 2] end
local running = call('HMGET', RUNNING, unpack(ids))
for i, id in ipairs(ids) do
  local epoch, name, value = unpack(ARGV, 4 * i - 1, 4 * i + 1)
  local is_held = sub(running[i] or '', 1, RUNNING_EPOCH_END) == epoch
  answers[i] = is_held and add_step(id, name, value, true, counts) or 'r'
end
if #counts > 0 then call('HSET', STEPS, unpack(counts)) end
return answers
