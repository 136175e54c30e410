-- Runs the undo function. Then either ends the script, or lets it run again without the transaction that failed. Each name
-- is skipped only once.
--
-- Needs: undo/begin.
-- Defines nothing.
local error_text = text_of(failure)
state.first_error = state.first_error or error_text
-- A server refuses only the first write of a script with these errors, so there was no effect.
local is_refused = ({ OOM = 1, READONLY = 1, MISCONF = 1, NOREPLICAS = 1, MASTERDOWN = 1 })[string.match(error_text, '^%u+')]
if not is_refused and u then
  -- The groups come last: how entries are removed from sublists does not depend on their turns.
  if not pcall(undo[u.undo]) then state.is_partial = true end
  for i = #(u.group_undos or {}), 1, -1 do u.group_undos[i](try) end
end
remove_messages()
local key = state.name
if is_refused or not key or state.skipped[key] then
  return redis.error_reply((state.is_partial and 'PARTIAL ' or 'UNDONE ') .. state.first_error)
end
state.skipped[key], state.name, state.transaction = true, nil, nil
