-- Functions for entries. `layout.lua` describes the format.
--
-- Flags of an entry: 1, it contains the payload; 2, it has an extension; 4, `errors` may have a row of the task; 8 and 16 are
-- reserved.
--
-- Needs no other part.
-- Defines: any_quarantined, is_entry, has_errors, task_key, parent_in, is_quarantined.

-- `true` if quarantined tasks may be waiting.
local any_quarantined = false

-- Returns `true` if the row has the whole header of an entry.
local function is_entry(row) return row and #row >= ENTRY_PAYLOAD - 1 end

-- Returns `true` if `errors` may have a row of a task with these flags.
local function has_errors(flags) return flags % 8 >= 4 end

-- Returns the key of a task and its mode, given a row whose entry begins after `before` bytes. If the task has no key, returns an
-- empty key and the mode 0.
local function task_key(row, before)
  if byte(row, before + ENTRY_FLAGS) % 4 < 2 or (byte(row, before + ENTRY_EXTENSION) or 0) % 4 < 2 then return '', 0 end
  local last = before + ENTRY_PAYLOAD + 1 + number_at('>I2', row, before + ENTRY_PAYLOAD)
  return sub(row, last - 16, last - 1), byte(row, last) or 0
end

-- Returns the parent of a task, given a row whose entry begins after `before` bytes, or an empty string.
local function parent_in(row, before)
  local flags = byte(row, before + ENTRY_FLAGS) % 4 >= 2 and byte(row, before + ENTRY_EXTENSION) or 0
  if flags % 16 < 8 then return '' end
  local last = before + ENTRY_PAYLOAD + 1 + number_at('>I2', row, before + ENTRY_PAYLOAD)
  if flags % 4 >= 2 then last = last - 17 end
  return sub(row, last - 15, last)
end

-- Returns `true` if one more crash makes the task a dead letter. A worker runs only one such task at a time.
local function is_quarantined(entry)
  local crashes, lost = number_at('>I2I2', entry, ENTRY_CRASHES)
  local deaths = crashes + math.min(lost, 1)
  return deaths > 0 and deaths + 1 >= number_at('>I2', entry, ENTRY_MAX_CRASHES)
end
