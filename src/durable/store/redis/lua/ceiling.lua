-- Epochs. The field `epoch` of `meta` has three numbers of 7 bytes: the last epoch; the *ceiling*, which the epochs of the
-- next minutes do not exceed; and the time at which the ceiling was raised, in microseconds. A server that may have
-- lost the last claims continues above the ceiling: see `recall.lua`.
--
-- Needs: base.

-- Returns the next last epoch, and the field that has it: above the last one by `step` or more, and not below `least`; if
-- it `is_recalled`, also above those that a copy may lack. A field that cannot be read counts as none. The ceiling is
-- raised unless it is far enough above the epoch and above the time.
local function next_epochs(least, step, is_recalled)
  local last, ceiling, raised_at = 0, 0, 0
  if #(meta[4] or '') == 21 then last, ceiling, raised_at = number_at('>I7I7I7', meta[4]) end
  -- Larger numbers are not exact.
  if last >= 2 ^ 53 or ceiling >= 2 ^ 53 or raised_at >= 2 ^ 53 then last, ceiling, raised_at = 0, 0, 0 end
  if is_recalled then least = ceiling + math.max(0, micros - raised_at) end
  last = last + step
  if last < least then last = least end
  local highest = last < micros and micros or last
  if ceiling < highest + CEILING_AHEAD then
    ceiling, raised_at = highest + CEILING_AHEAD / 2 * 3, micros
  end
  return last, pack('>I7I7I7', last, ceiling, raised_at)
end
