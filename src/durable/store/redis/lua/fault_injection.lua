-- Sets `micros` as `manual_time.lua` does, and makes one command fail. Tests use it to let every command of every script
-- fail in turn. The name of the command that fails is added to the set `failed:NAMESPACE`.
--
-- ARGV[last - 2] -> index of the command that fails, from 1; 0 if none does
-- ARGV[last - 1] -> "before" or "after": whether the command fails before or after it has run
-- ARGV[last]     -> time
--
-- Needs no other part.
-- Defines: micros, call, redis.
local micros, fails_at, mode = tonumber(ARGV[#ARGV]), tonumber(ARGV[#ARGV - 2]), ARGV[#ARGV - 1]
local real = redis
local has_state, counter = pcall(function() return state end)
if not has_state then counter = {} end
counter.calls = counter.calls or 0

local function call(...)
  counter.calls = counter.calls + 1
  if counter.calls ~= fails_at then return real.call(...) end
  if mode == 'after' then real.call(...) end
  real.call('SADD', 'failed:' .. string.match(KEYS[1], '{(.-):'), (...))
  error({ err = 'ERR a test has it fail' })
end
local redis = { call = call, pcall = real.pcall, error_reply = real.error_reply }
