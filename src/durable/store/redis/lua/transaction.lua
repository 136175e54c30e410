-- Transactions of a script. A transaction takes effect as a whole or not at all. The whole script is a function, `main`.
-- If a command fails, a function in `undo` reverts the transaction that `state.transaction` describes. Then, if there is a
-- `state.name`, `main` is called again and skips the transaction of that name. As long as no command fails, this costs
-- next to nothing: a script creates its functions and tables in each run, and each of them takes time.
--
-- Fields of `state`, which outlasts a call of `main`:
--
-- transaction -> what is being written, and how it is undone
-- name        -> name of the transaction, or nil if a failure ends the script
-- skipped     -> names of transactions that have failed
-- committed   -> names of transactions that have taken effect
-- first_error -> first error
-- is_partial  -> `true` if something could not be undone
-- pushed      -> bundles of entries that were added to lists: see `lists.lua`
-- freed       -> queues of which tasks have stopped running, as keys; nil if there are none
--
-- Needs no other part. Uses the table `state`, which the lines before `main` set.
-- Defines: skipped, committed, first_error, commit.
local skipped, committed, first_error = state.skipped or {}, state.committed or {}, state.first_error
state.skipped, state.committed, state.pushed = skipped, committed, state.pushed or {}

-- Records that the transaction has taken effect. A failure of what follows no longer undoes it.
local function commit(name) committed[name], state.name, state.transaction = true, name, nil end
