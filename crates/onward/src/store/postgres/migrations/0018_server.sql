-- Which server a worker joined: one that was promoted, or restored from a backup, may lack what it had
-- acknowledged last.
alter table onward.workers add column server text collate "C";
