-- Determines from which lists live workers claim.
--
-- Needs: set_lists, liveness.
-- Defines: served_lists.

-- Returns the lists that live workers claim from, including lists of paused types; the lists that they drain; and those of these lists that
-- no worker reads, because the types are paused.
local function served_lists()
  local leaves, draining, unread = {}, {}, {}
  for set in pairs(live_sets()) do
    local paused = call('HGET', ROUTES, 'p' .. set) or ''
    local last_leaf = #paused > 2 and 2 + 16 * number_at('>I2', paused) or 0
    for at = 3, #paused - 15, 16 do
      local some, list = at <= last_leaf and leaves or draining, sub(paused, at, at + 15)
      some[list], unread[list] = true, true
    end
    local first, last = lists_of_set(set)
    for _, list in ipairs(last or {}) do leaves[list] = true end
    for _, list in ipairs(first or {}) do draining[list] = true end
  end
  return leaves, draining, unread
end
