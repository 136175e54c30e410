-- Reads or changes how long, and how many, ended tasks are kept.
--
-- Needs: retention.
-- KEYS: NONE, META.
--
-- ARGV[1]    -> "read" or "set"
-- ARGV[2..4] -> to set: the first three numbers of the field `retention` of `meta`
--
-- Output when reading: these three numbers
-- Output when setting: OK
if ARGV[1] == 'read' then return { retention().dead_for, retention().dead_most, retention().kept_most } end
local dead_for, dead_most, kept_most = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local dead_since = math.max(dead_letter_cutoff() + 1, 0)
-- The next pass of maintenance is not skipped. The first write must be one that a server without memory accepts; it then accepts the other,
-- so less can be kept from now on.
call('HDEL', META, 'passed')
local sum = dead_for + dead_most + kept_most + dead_since
call('HSET', META, 'retention', pack('>I6I6I6I6I6', dead_for, dead_most, kept_most, dead_since, sum))
return 'OK'
