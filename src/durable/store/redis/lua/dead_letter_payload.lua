-- Reads the payload of a dead letter.
--
-- Needs: dead_letter_row, intact_entry, retention.
-- KEYS: NONE, META, PAYLOADS, DEAD, DIED.
--
-- ARGV[1] -> id
--
-- Output: empty if no dead letter has this id, else:
-- [1] -> entry, or empty if it cannot be read
-- [2] -> payload if it is stored separately, or nil
local id = ARGV[1]
if not is_dead_letter_kept(call('ZSCORE', DIED, id)) then return {} end
local row = call('HGET', DEAD, id)
local entry = is_dead_letter_row(row) and sub(row, DEAD_ERROR + number_at('>I4', row, DEAD_ERROR_LENGTH)) or ''
if not is_intact(id, entry) then return { '', false } end
local is_inline = byte(entry, ENTRY_FLAGS) % 2 == 1
return { entry, not is_inline and call('HGET', PAYLOADS, id) }
