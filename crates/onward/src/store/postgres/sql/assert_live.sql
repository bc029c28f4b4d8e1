-- The fence, as the last word of a transaction.
select onward.assert_live($1)
