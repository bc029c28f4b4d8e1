-- A key and the server's time, of one moment: its milliseconds and microseconds, then the fields.
local time = redis.call('TIME')
local micros = string.format('%.0f', time[1] * 1000000 + time[2])
local millis = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
return { millis, micros, redis.call('HGETALL', KEYS[1]) }
