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

-- The name of a bin consists of the time until which its results are kept and the time at which it was written. Store time
-- may stand still for a while; without the second time, one bin would grow meanwhile, and each write would copy all of it.
-- The entry of a bin in `expiry` is written before the bin, so each bin that exists has one.
local function write_bins()
  for over, ids in pairs(bins) do
    local bin, text = string.format('%.0f-%.0f', over, micros), concat(ids)
    call('ZADD', EXPIRY, over, bin)
    if call('HSETNX', EXPIRY_BINS, bin, text) == 0 then
      call('HSET', EXPIRY_BINS, bin, call('HGET', EXPIRY_BINS, bin) .. text)
    end
  end
end
