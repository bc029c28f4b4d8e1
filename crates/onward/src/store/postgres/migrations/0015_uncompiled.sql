-- A worker's last claim that takes nothing any more, because it was asked for again.
--
-- And a version of its own, so that every store writes its functions anew: none of them is compiled.

alter table onward.workers add column closed_ticket bigint;
