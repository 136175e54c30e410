-- Store time, in milliseconds, which decides how long ends are kept. It advances with the server's clock, but never falls
-- behind the last pass of maintenance, and is at most a minute ahead of it. So if the clock is set, no end is removed more
-- than a minute early.
--
-- Needs: base.
local function store_time()
  -- It is read once. A field of the Lua table costs no allocation in scripts that do not need it.
  if meta.time then return meta.time end
  -- The store time that was last recorded, and the server's time at that moment.
  local row = call('HGET', META, 'aged') or ''
  local aged, at = now, now
  if #row == 12 then aged, at = number_at('>I6I6', row) end
  -- A row with a time after the year 2223 is damaged.
  if math.max(aged, at) > 8e12 then aged, at = now, now end
  meta.time = aged + math.min(math.max(now - at, 0), MAX_AGED)
  return meta.time
end
