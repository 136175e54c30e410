-- Determines which lists the sessions of a set read.
--
-- Needs: lists.

-- Returns the lists that the sessions of a set drain, and those that they claim from; nil if the set is not declared.
local function lists_of_set(set)
  if set == plain_set then return {}, { MAIN } end
  local plan = set ~= '' and call('HGET', ROUTES, 's' .. set)
  if not plan or #plan < 2 or #plan % 16 ~= 2 then return nil end
  local drains, draining, leaves = number_at('>I2', plan), {}, {}
  for at = 3, #plan, 16 do
    local to = #draining < drains and draining or leaves
    to[#to + 1] = sub(plan, at, at + 15)
  end
  return draining, leaves
end
