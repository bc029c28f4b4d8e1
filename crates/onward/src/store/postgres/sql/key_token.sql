-- Lets later holds have higher tokens than this one.
select setval(
    pg_get_serial_sequence('onward.step_keys', 'token'),
    greatest($1, nextval(pg_get_serial_sequence('onward.step_keys', 'token')))
)
