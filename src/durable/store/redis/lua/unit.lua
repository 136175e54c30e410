-- Units. A unit takes effect as a whole or not at all. All of the script is a function that is called once: if a
-- command fails, what is in `undo` takes the unit back that `state.unit` describes, and if there is a `state.key`,
-- the function is called again, and leaves the unit of that key out. As long as no command fails, that costs next
-- to nothing: functions and tables are made whenever a script runs, and each takes time.
--
-- In `state` is what lasts from one call to the next: `unit`, what is written now and how it is undone; `key`, its
-- name; `skip`, the keys of units that have failed; `done`, of those that have taken effect; `trouble`, the first
-- error; `is_half`, whether something could not be undone; `pushed`, the groups of tasks that have come to wait.
--
-- Needs: base.
local skip, done, trouble = state.skip or {}, state.done or {}, state.trouble
state.skip, state.done, state.pushed = skip, done, state.pushed or {}

-- The unit has taken effect. What it still has to do can fail alone.
local function has_effect(key) done[key], state.key, state.unit = true, key, nil end
