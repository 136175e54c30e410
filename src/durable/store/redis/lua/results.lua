-- Results that are kept, and the bins by which they are removed.
--
-- Needs: store_time.
local bins = {}

-- Returns the bin of results that are kept for so long, and until when that is.
local function bin_of(retention)
  local over = store_time() + retention
  local ids = bins[over]
  if not ids then
    ids = {}
    bins[over] = ids
  end
  return ids, pack('>I6', over)
end

-- A bin is named after the time until which its results are kept, and that at which they are written: store time may
-- stand still for a while, and a bin that grows is written as a whole each time. A bin that is there is also in
-- `expiry`: that is written first.
local function write_bins()
  for over, ids in pairs(bins) do
    local bin, text = string.format('%.0f-%.0f', over, micros), concat(ids)
    call('ZADD', EXPIRY, over, bin)
    if call('HSETNX', EXPIRY_BINS, bin, text) == 0 then
      call('HSET', EXPIRY_BINS, bin, call('HGET', EXPIRY_BINS, bin) .. text)
    end
  end
end
