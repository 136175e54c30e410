-- Store time, by which ends are kept, in milliseconds. It goes on with the server's clock, but not back behind the
-- last pass of maintenance, and no further than a minute from there: so a clock that is set removes nothing that was to be
-- kept for longer than a minute.
--
-- Needs: base.
local function store_time()
  -- It is read once. What is kept here costs no allocation in scripts that do not need it.
  if meta.time then return meta.time end
  -- Store time when it was last written, and the server's time then.
  local row = call('HGET', META, 'aged') or ''
  local aged, at = now, now
  if #row == 12 then aged, at = number_at('>I6I6', row) end
  -- A row that cannot be read: no time is after the year 2223.
  if math.max(aged, at) > 8e12 then aged, at = now, now end
  meta.time = aged + math.min(math.max(now - at, 0), MAX_AGED)
  return meta.time
end
