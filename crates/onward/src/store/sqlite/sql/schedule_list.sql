-- A page of schedules by name; follows schedule.sql.
where name > ?1
order by name
limit ?2
