-- The condition that finds what a claim took and its worker still holds; follows run.sql.
where r.state = 'running'
    and r.worker = $1
    and r.ticket = $2
order by r.id
