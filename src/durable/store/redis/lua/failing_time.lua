-- The time in tests of the store, as in `told_time.lua`, and a command that fails: the third argument from the end
-- says which, and the second whether before or after it has run.
local micros, fails_at, mode = tonumber(ARGV[#ARGV]), tonumber(ARGV[#ARGV - 2]), ARGV[#ARGV - 1]
local real = redis
local has_state, counter = pcall(function() return state end)
if not has_state then counter = {} end
counter.calls = counter.calls or 0

local function call(...)
  counter.calls = counter.calls + 1
  if counter.calls ~= fails_at then return real.call(...) end
  if mode == 'after' then real.call(...) end
  real.call('INCR', 'failed:' .. string.match(KEYS[1], '{(.-):'))
  error({ err = 'ERR a test has it fail' })
end
local redis = { call = call, pcall = real.pcall, error_reply = real.error_reply }
