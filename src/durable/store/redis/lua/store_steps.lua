-- Stores steps of running tasks. A step never changes.
--
-- Needs: steps.
-- KEYS: NONE, META, RUNNING, STEPS.
--
-- ARGV[1]   -> number of steps, n
-- ARGV[2..] -> n times: id of the task; epoch of the run; name; value
--
-- Output: for each step: `s` if it was stored; `f` and the value if the task has a step with this name; `r` if the task is not held under
--   this epoch; `x` if the task has too many steps; `e` if its steps cannot be read
local answers, counts, ids, rows = {}, {}, {}, {}
for i = 1, tonumber(ARGV[1]) do ids[i] = ARGV[4 * i - 2] end
local running, before = call('HMGET', RUNNING, unpack(ids)), call('HMGET', STEPS, unpack(ids))
for i, id in ipairs(ids) do rows[id] = before[i] end
for i, id in ipairs(ids) do
  local epoch, name, value = unpack(ARGV, 4 * i - 1, 4 * i + 1)
  answers[i] = 'r'
  if sub(running[i] or '', 1, RUNNING_EPOCH_END) == epoch then
    answers[i], rows[id] = add_step(id, name, value, rows[id], true)
  end
end
for i, id in ipairs(ids) do
  if rows[id] ~= before[i] then counts[#counts + 1], counts[#counts + 2] = id, rows[id] end
end
if #counts > 0 then call('HSET', STEPS, unpack(counts)) end
return answers
