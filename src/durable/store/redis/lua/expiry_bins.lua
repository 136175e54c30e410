-- Groups results that are kept into bins, by which maintenance removes them.
--
-- Needs: store_time.
-- Defines: expiry_bins, expiry_bin, write_bins.
local expiry_bins = {}

-- Returns the ids in the bin for this retention, and the times with which the rows of its results begin.
local function expiry_bin(retention)
  local ended_at = store_time()
  local expiry = ended_at + retention
  local ids = expiry_bins[expiry]
  if not ids then
    ids = {}
    expiry_bins[expiry] = ids
  end
  return ids, pack('>I6I6', expiry, ended_at)
end

-- The name of a bin consists of the time until which its results are kept and the time at which it was written. Store time
-- may stand still for a while; without the second time, one bin would grow meanwhile, and each write would copy all of it.
-- The entry of a bin in `expiry` is written before the bin, so each bin that exists has one.
local function write_bins()
  for expiry, ids in pairs(expiry_bins) do
    local bin, text = string.format('%.0f-%.0f', expiry, micros), concat(ids)
    call('ZADD', EXPIRY, expiry, bin)
    if call('HSETNX', EXPIRY_BINS, bin, text) == 0 then
      call('HSET', EXPIRY_BINS, bin, call('HGET', EXPIRY_BINS, bin) .. text)
    end
  end
end
