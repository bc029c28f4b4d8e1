//! What a coded store has for those who steer runs, and for what runs note on themselves.
//!
//! Owns: the fork of a run whose payloads are bound to it, and that lines of a log go through the codecs.
//! Never touches a tag or how far a run has come: these are to be looked for and seen.

use std::collections::BTreeMap;

use super::pass::{Opening, Sealing};
use super::{CodedStore, refused, visit};
use crate::limits::PAGE_ROWS_MAX;
use crate::store::steer::forks_at;
use crate::store::{
    Answer, Conflict, Error, Fork, Lease, LogPage, Note, Notebook, Pause, Rewritten, Seen, Steer,
    Which,
};
use crate::{Entry, Run, RunId};

impl CodedStore {
    fn inner_steer(&self) -> Result<&dyn Steer, Error> {
        self.inner.steer().ok_or(Error::NotFound)
    }

    fn inner_notebook(&self) -> Result<&dyn Notebook, Error> {
        self.inner.notebook().ok_or(Error::NotFound)
    }

    /// Forks a run. Each payload is bound to its run, so they are opened and sealed for the fork; what
    /// is recorded does not change, so that it may be read before. A fork that is there is not made
    /// again, so a repeat opens nothing; the store inside has the last word on that, and on the key.
    async fn fork_sealed(&self, mut fork: Fork) -> Result<Run, Error> {
        let steer = self.inner_steer()?;
        if let Some(there) = self.inner.get(Which::Id(fork.id)).await? {
            return Ok(self.open_run(there));
        }
        let source = self.inner.get(Which::Id(fork.run)).await?.ok_or(Error::NotFound)?;
        self.check_key(&fork, &source).await?;
        let mut opening = Opening::of_run(&self.coding, &source);
        let mut sealing = Sealing::new(&self.coding);
        let mut input = match fork.input.clone() {
            Some(input) => input,
            None => visit::input_of(source, &mut opening),
        };
        visit::fork(&mut fork, &mut input, &mut sealing);
        let entries = self.entries_for(&fork, &mut opening, &mut sealing).await?;
        opening.done()?;
        sealing.done()?;
        fork.input = fork.input.map(|_| input.clone());
        fork.rewritten = Some(Rewritten { input, entries });
        Ok(self.open_run(steer.fork(fork).await?))
    }

    /// Refuses a fork whose key is in use before anything is opened for it.
    async fn check_key(&self, fork: &Fork, source: &Run) -> Result<(), Error> {
        let Some(key) = &fork.key else { return Ok(()) };
        let (workflow, key) = (source.workflow.clone(), key.key.clone());
        match self.inner.get(Which::Key { workflow, key }).await? {
            Some(holder) => Err(Error::Conflict(Conflict::KeyTaken { run: holder.id })),
            None => Ok(()),
        }
    }

    /// What the records before the fork's step say, as it is stored for the fork. Those that come after
    /// are not opened: the fork does without them, and one that cannot be read must not refuse it.
    async fn entries_for(
        &self,
        fork: &Fork,
        opening: &mut Opening<'_>,
        sealing: &mut Sealing<'_>,
    ) -> Result<BTreeMap<u64, Entry>, Error> {
        let (mut entries, mut after) = (BTreeMap::new(), None);
        loop {
            let page = self.inner.history(fork.run, after, PAGE_ROWS_MAX).await?;
            for mut record in page.records {
                if forks_at(&record, &fork.step) {
                    return Ok(entries);
                }
                after = Some(record.seq);
                visit::record(fork.run, &mut record, opening);
                visit::record(fork.id, &mut record, sealing);
                entries.insert(record.seq, record.entry);
            }
            // Without a record of the step there is nothing to fork, which the store inside says.
            if !page.more {
                return Ok(entries);
            }
        }
    }
}

impl Steer for CodedStore {
    fn pause(&self, pause: Pause) -> Answer<'_, Run> {
        Box::pin(async move { Ok(self.open_run(self.inner_steer()?.pause(pause).await?)) })
    }

    fn resume(&self, run: RunId) -> Answer<'_, Run> {
        Box::pin(async move { Ok(self.open_run(self.inner_steer()?.resume(run).await?)) })
    }

    fn retry_seen(&self, seen: Seen) -> Answer<'_, bool> {
        match self.inner_steer() {
            Ok(steer) => steer.retry_seen(seen),
            Err(error) => refused(error),
        }
    }

    fn fork(&self, fork: Fork) -> Answer<'_, Run> {
        Box::pin(self.fork_sealed(fork))
    }

    fn cascade(&self) -> Answer<'_, bool> {
        match self.inner_steer() {
            Ok(steer) => steer.cascade(),
            Err(error) => refused(error),
        }
    }
}

impl Notebook for CodedStore {
    fn note(&self, lease: Lease, mut note: Note) -> Answer<'_, ()> {
        let mut sealing = Sealing::new(&self.coding);
        visit::note(lease.run, &mut note, &mut sealing);
        match sealing.done().and_then(|()| self.inner_notebook()) {
            Ok(notebook) => notebook.note(lease, note),
            Err(error) => refused(error),
        }
    }

    fn log(&self, run: RunId, after: u64, limit: usize) -> Answer<'_, LogPage> {
        Box::pin(async move {
            let mut page = self.inner_notebook()?.log(run, after, limit).await?;
            let mut opening = Opening::new(&self.coding);
            page.lines.iter_mut().for_each(|line| visit::log_line(run, line, &mut opening));
            Ok(page)
        })
    }
}
