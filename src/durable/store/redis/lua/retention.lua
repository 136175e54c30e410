-- The time for which ended tasks are kept, and their number.
--
-- The field `retention` of `meta`: time for which dead letters are kept, in milliseconds 6; maximum number of dead letters 6; maximum
-- number of results plus 1, or 0 if there is none 6; store time of death before which dead letters have expired in any case 6; sum of these
-- numbers 6. The last but one ensures that no dead letter that has expired comes back when the first number rises. Without the field,
-- the defaults apply.
--
-- Needs: store_time.
-- Defines: retention, dead_letter_cutoff, is_dead_letter_kept.

-- Returns the numbers. The field is read when it is first needed, since most scripts meet no dead letter.
local function retention()
  if meta.retention then return meta.retention end
  local it, row = { dead_for = DEAD_RETENTION, dead_most = MAX_DEAD, kept_most = 0, dead_since = 0 }, call('HGET', META, 'retention')
  if row then
    local dead_for, dead_most, kept_most, dead_since, sum = 0, 0, 0, 0, -1
    if #row == 30 then dead_for, dead_most, kept_most, dead_since, sum = number_at('>I6I6I6I6I6', row) end
    if dead_for + dead_most + kept_most + dead_since == sum then
      it = { dead_for = dead_for, dead_most = dead_most, kept_most = kept_most, dead_since = dead_since }
    else meta.lost_retention = row end
  end
  meta.retention = it
  return it
end

-- Returns the time of death up to which dead letters have expired.
local function dead_letter_cutoff() return math.max(retention().dead_since - 1, store_time() - retention().dead_for) end

-- Returns `true` if a dead letter with this score in `died`, which may be missing, has not expired.
local function is_dead_letter_kept(died) return died and tonumber(died) > dead_letter_cutoff() or false end
