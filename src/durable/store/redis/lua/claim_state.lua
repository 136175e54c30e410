-- The variables that the parts of a claim share. The server creates the functions of a script in each run, so only these variables are in
-- every turn.
--
-- Needs no other part.
-- Defines: want, want_bytes, tombstones, claimed, is_push, push_wait, any_separate, any_extension, any_failed.
--
-- The arguments are those of `turn.lua`:
--
-- ARGV[4] -> number of tasks wanted
-- ARGV[5] -> number of bytes wanted
local want, want_bytes = math.min(tonumber(ARGV[4]), MAX_BATCH), tonumber(ARGV[5])
-- If the number of tombstones is unknown, this is an estimate.
local tombstones = tonumber(meta[5]) or call('HLEN', TOMBSTONES)
-- The claimed entries, and whether the claim was pushed before.
local claimed, is_push = {}, false
-- If pushed claims that may not have arrived use all permits: the milliseconds until the first of them counts as lost.
local push_wait
-- `true` if the payload of an entry may be elsewhere, if an entry may have an extension, or if `errors` may have a row of a task.
local any_separate, any_extension, any_failed = false, false, false
