-- Runs the undo, and lets the script go on without the unit, or ends it. A script goes on only once without each.
--
-- Needs: begin.
local why = text_of(failure)
state.trouble = state.trouble or why
-- A server says this only of the first write of a script, so nothing has happened.
local is_refused = ({ OOM = 1, READONLY = 1, MISCONF = 1, NOREPLICAS = 1, MASTERDOWN = 1 })[string.match(why, '^%u+')]
if not is_refused and u and not pcall(undo[u.undo]) then state.is_half = true end
take_messages_back()
local key = state.key
if is_refused or not key or state.skip[key] then
  return redis.error_reply((state.is_half and 'HALF ' or 'UNDONE ') .. state.trouble)
end
state.skip[key], state.key, state.unit = true, nil, nil
