-- Computes store time, in milliseconds, which determines how long ends are kept. It advances with the server's clock, but
-- never falls behind the last pass of maintenance, and is at most a minute ahead of it. So if the clock is set, no end is
-- removed more than a minute early.
--
-- Needs no other part.
-- Defines: store_time.
local function store_time()
  -- The result is cached. A field of an existing table costs no allocation in scripts that do not need it.
  if meta.time then return meta.time end
  -- The store time that was last recorded, the server's time at that moment, and their sum. If the sum does not match, the
  -- row is damaged. A store time that is far ahead would remove all ends at once.
  local row, aged, at, sum = meta[7], 0, 0, 0
  if row == nil then row = call('HGET', META, 'aged') end
  row = row or ''
  if #row == 18 then aged, at, sum = number_at('>I6I6I6', row) end
  if #row ~= 18 or aged + at ~= sum then aged, at, meta.lost_time = now, now, row end
  meta.time = aged + math.min(math.max(now - at, 0), MAX_AGED)
  return meta.time
end
