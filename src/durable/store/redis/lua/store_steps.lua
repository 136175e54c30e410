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
local answers = {}
for i = 1, tonumber(ARGV[1]) do
  local id, epoch, name, value = unpack(ARGV, 4 * i - 2, 4 * i + 1)
  local is_held = sub(call('HGET', RUNNING, id) or '', 1, RUNNING_EPOCH_END) == epoch
  answers[i] = is_held and add_step(id, name, value, true) or 'r'
end
return answers
