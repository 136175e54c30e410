-- Sets `micros`, the time in microseconds since 1970, in tests with a manual clock.
--
-- ARGV[last] -> time
--
-- Needs no other part.
-- Defines: micros.
local micros = tonumber(ARGV[#ARGV])
