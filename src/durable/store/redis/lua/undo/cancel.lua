-- Puts tasks back that were cancelled.
--
-- Needs: begin.
function undo.cancel()
  try_all('HSET', ALIVE, u.alive)
  restore_errors(u.ended, u.errors)
  try_all('HSET', DELAYED, u.later)
  try_all('ZADD', DUE, u.dues)
  try_all('SADD', QUARANTINED, u.quarantined)
  for i = 1, #u.stones, 2 do
    if u.stones[i + 1] > 0 then
      try('HSET', TOMBSTONES, u.stones[i], u.stones[i + 1])
    else
      try('HDEL', TOMBSTONES, u.stones[i])
    end
  end
  if #u.stones > 0 then try('HSET', META, 'tombstones', u.tombstones) end
  try_all('HDEL', RESULTS, every_second(u.results, 1))
  for i, flag in ipairs(u.before or {}) do
    if not flag then try('HDEL', CANCEL, u.flags[2 * i - 1]) end
  end
end
