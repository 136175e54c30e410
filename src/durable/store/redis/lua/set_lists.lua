-- Determines which lists the sessions of a set read. The field s<set> of `routes`: number of draining lists 2, numbers of the lists
-- from which High, Normal and Low tasks are claimed 2 each, length of the name of the queue 1, name, ids of the lists in
-- this order.
--
-- Needs: lists.
-- Defines: lists_of_set.

-- Returns the lists that the sessions of a set drain, those that they claim from, the queue of the set, and, if they claim
-- tasks of several priorities, the lists of each priority. Returns nil if the set is not declared.
local function lists_of_set(set)
  if set == plain_set then return {}, { MAIN }, '', nil end
  local plan = set ~= '' and call('HGET', ROUTES, 's' .. set)
  if not plan or #plan < PLAN_QUEUE - 1 or #plan < PLAN_QUEUE - 1 + byte(plan, PLAN_QUEUE_LENGTH) then return nil end
  local drains, high, normal, low, length = number_at('>I2I2I2I2B', plan)
  local at, leaves = PLAN_QUEUE + length, {}
  if #plan ~= at - 1 + 16 * (drains + high + normal + low) then return nil end
  local function take(n, all)
    local some = {}
    for i = 1, n do
      some[i], all[#all + 1] = sub(plan, at, at + 15), sub(plan, at, at + 15)
      at = at + 16
    end
    return some
  end
  local draining = take(drains, {})
  local priorities = { high = take(high, leaves), normal = take(normal, leaves), low = take(low, leaves) }
  return draining, leaves, sub(plan, PLAN_QUEUE, PLAN_QUEUE + length - 1), high + low > 0 and priorities or nil
end
