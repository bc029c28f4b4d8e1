-- Counts one that came second with a hold, once for each holder, and keeps the latest of them.
--
-- ARGV: the token of the hold, the holder as a JSON text, what is kept of it in one line, and how
-- many lines are kept.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then
    return 0
end
local kept = redis.call('HGET', KEYS[1], 'audit') or ''
local mark = '\n' .. ARGV[2] .. '\t'
if string.find('\n' .. kept, mark, 1, true) then
    return 0
end
redis.call('HINCRBY', KEYS[1], 'duplicates', 1)
local lines = {}
for line in string.gmatch(kept, '[^\n]+') do
    lines[#lines + 1] = line
end
lines[#lines + 1] = ARGV[2] .. '\t' .. ARGV[3]
while #lines > tonumber(ARGV[4]) do
    table.remove(lines, 1)
end
redis.call('HSET', KEYS[1], 'audit', table.concat(lines, '\n'))
return 1
