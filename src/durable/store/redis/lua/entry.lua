-- Entries.
--
-- Bytes: id 16, client id 8, retention 6, most crashes 2, failures 4, crashes 2, lost 2, ready at 6, kind 8,
-- flags 1 (1: the payload is here; 4: `errors` may have a row; 2, 8 and 16 are reserved), length of the payload 4, payload, name.
--
-- Needs: base.

-- True if there may be quarantined tasks in the line.
local any_quarantined = false

-- Returns whether this is an entry, as far as the scripts look at it.
local function is_entry(row) return row and #row >= PAYLOAD - 1 end

-- Returns whether `errors` may have a row of a task with these flags.
local function has_errors(flags) return flags % 8 >= 4 end

-- Returns what `alive` has of a task.
local function alive_row(entry) return sub(entry, 17, 30) .. sub(entry, 47, 54) end

-- Returns whether a worker runs only one such task at a time.
local function is_quarantined(entry)
  local crashes, lost = number_at('>I2I2', entry, 37)
  local deaths = crashes + math.min(lost, 1)
  return deaths > 0 and deaths + 1 >= number_at('>I2', entry, 31)
end
