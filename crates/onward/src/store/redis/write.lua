-- Writes a key if it is as it was read, and says whether it did.
--
-- ARGV: the version that was read, nothing for a key that was not there; what to do with what is
-- there (`keep`, `forget`); after how many milliseconds the server forgets the key, nothing: never;
-- then fields and values, none of them for a key that is to be gone.
local version = redis.call('HGET', KEYS[1], 'version') or ''
if version ~= ARGV[1] then
    return 0
end
if ARGV[2] == 'forget' then
    redis.call('DEL', KEYS[1])
end
if #ARGV > 3 then
    redis.call('HSET', KEYS[1], unpack(ARGV, 4))
    if ARGV[3] == '' then
        redis.call('PERSIST', KEYS[1])
    else
        redis.call('PEXPIRE', KEYS[1], ARGV[3])
    end
end
return 1
