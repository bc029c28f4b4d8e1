-- What of JSON a payload may hold: what the library can read back.

-- Gives a value back, or refuses it: a number beyond a float, and more than 100 arrays and objects in one
-- another. The largest floats are refused too: the library reads them as infinite from all of their digits.
create or replace function onward.held(value jsonb) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if jsonb_path_exists(
        value,
        'strict $.** ? (@.type() == "number"
            && (@ >= 1.797e308 || @ <= -1.797e308))'
    ) or jsonb_path_exists(
        value, 'strict $.**{100} ? (@.type() == "array" || @.type() == "object")'
    ) then
        raise exception 'not_serializable: a number is beyond a float, or the value is nested too deep'
        using errcode = 'OW006', hint = 'write the number as a text; 100 arrays and objects in one another fit';
    end if;
    return value;
end
$$;
