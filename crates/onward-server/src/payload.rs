//! Payloads as they may be shown.
//!
//! Owns: which fields of runs, records, logs, schedules and keys are payloads. Never shows one without
//! asking the options.

use onward::{Entry, Failure, Json, LogLine, Record, Run, RunId, Schedule, StepKey};

use crate::options::{Options, Payload, PayloadPlace};

/// Whose work a step key is about.
#[derive(Default)]
pub(crate) struct Holder {
    /// The run, unless the work was outside any.
    pub(crate) run: Option<RunId>,
    /// Its workflow, while the run is there.
    pub(crate) workflow: Option<String>,
}

impl Options {
    pub(crate) fn shown_run(&self, mut run: Run) -> Run {
        run.input = self.shown_of(&run, PayloadPlace::Input, &run.input);
        run.output = run.output.as_ref().map(|it| self.shown_of(&run, PayloadPlace::Output, it));
        run.failure = run.failure.clone().map(|failure| self.shown_failure(failure, &run));
        run
    }

    /// A record, whose callback nobody answers by having looked.
    pub(crate) fn shown_record(&self, record: Record, run: &Run) -> Record {
        let mut record = record.without_secret();
        record.entry = match record.entry {
            Entry::Done(json) => Entry::Done(self.shown_of(run, PayloadPlace::Record, &json)),
            Entry::Arrived(json) => Entry::Arrived(self.shown_of(run, PayloadPlace::Record, &json)),
            Entry::Failed(failure) => Entry::Failed(self.shown_failure(failure, run)),
            Entry::TryFailed { failure, next_at } => {
                Entry::TryFailed { failure: self.shown_failure(failure, run), next_at }
            }
            other => other,
        };
        record
    }

    pub(crate) fn shown_schedule(&self, mut schedule: Schedule) -> Schedule {
        schedule.input = self.shown(Payload {
            json: &schedule.input,
            place: PayloadPlace::Input,
            workflow: Some(&schedule.workflow),
            run: None,
        });
        schedule
    }

    /// A line of a run's log, which may quote a payload.
    pub(crate) fn shown_line(&self, mut line: LogLine, run: &Run) -> LogLine {
        let Ok(json) = Json::of(&line.text) else { return line };
        let shown = self.shown_of(run, PayloadPlace::Log, &json);
        line.text = shown.read().unwrap_or_else(|_| shown.as_str().to_owned());
        line
    }

    pub(crate) fn shown_key(&self, mut key: StepKey, of: Holder) -> StepKey {
        let workflow = of.workflow.as_deref();
        key.result = key.result.map(|json| {
            let place = PayloadPlace::StepKey;
            self.shown(Payload { json: &json, place, workflow, run: of.run })
        });
        key.failure = key.failure.map(|failure| self.shown_details(failure, workflow, of.run));
        key
    }

    fn shown_failure(&self, failure: Failure, run: &Run) -> Failure {
        self.shown_details(failure, Some(&run.workflow), Some(run.id))
    }

    fn shown_details(
        &self,
        failure: Failure,
        workflow: Option<&str>,
        run: Option<RunId>,
    ) -> Failure {
        let Some(json) = failure.details.clone() else { return failure };
        let place = PayloadPlace::Details;
        let details = self.shown(Payload { json: &json, place, workflow, run });
        failure.details(&details)
    }
}
