-- What every script begins with. The lines before say which key is which, and what time it is.
local call, concat = redis.call, table.concat
local sub, byte, char = string.sub, string.byte, string.char
local pack, number_at = struct.pack, struct.unpack
local now = math.floor(micros / 1000)
local BASE = sub(META, 1, -5)

local meta = call('HMGET', META, 'layout', 'epoch', 'tombs')
if meta[1] and tonumber(meta[1]) > LAYOUT then return redis.error_reply('NEWLAYOUT ' .. meta[1]) end
