-- Computes epochs. The field `epoch` of `meta` holds three numbers of 7 bytes: the last epoch; the *ceiling*, which the
-- epochs of the next minutes do not exceed; and the time at which the ceiling was raised, in microseconds. If a server may
-- have lost the last claims, its new epochs are above the ceiling: see `advance_epochs.lua`.
--
-- Needs no other part.
-- Reads: epoch, tombstones.
-- Defines: next_epochs.

-- Returns a new epoch and the new value of the field `epoch`. The new epoch exceeds the last one by at least `step`, and
-- is not below `least`. With `above_ceiling`, it also exceeds all epochs that a copy may lack. An unreadable field counts
-- as missing. The ceiling is raised unless it is far enough above the epoch and the time.
local function next_epochs(least, step, above_ceiling)
  local last, ceiling, raised_at = 0, 0, 0
  if #(meta[4] or '') == 21 then last, ceiling, raised_at = number_at('>I7I7I7', meta[4]) end
  -- Larger numbers are not exact.
  if last >= 2 ^ 53 or ceiling >= 2 ^ 53 or raised_at >= 2 ^ 53 then last, ceiling, raised_at = 0, 0, 0 end
  if above_ceiling then least = ceiling + math.max(0, micros - raised_at) end
  last = last + step
  if last < least then last = least end
  local highest = last < micros and micros or last
  if ceiling < highest + CEILING_AHEAD then
    ceiling, raised_at = highest + CEILING_AHEAD / 2 * 3, micros
  end
  return last, pack('>I7I7I7', last, ceiling, raised_at)
end
