//! Payloads as they may be shown.
//!
//! Owns: which fields of runs, records, logs, schedules and keys are payloads. Never shows one without
//! asking the options.

use onward::{Entry, Failure, Json, LogLine, Record, Run, Schedule, StepKey};

use crate::options::{Options, Payload, PayloadPlace};

impl Options {
    pub(crate) fn shown_run(&self, mut run: Run) -> Run {
        run.input = self.shown_of(&run, PayloadPlace::Input, &run.input);
        run.output = run.output.as_ref().map(|it| self.shown_of(&run, PayloadPlace::Output, it));
        run.failure = run.failure.clone().map(|failure| self.shown_failure(failure, Some(&run)));
        run
    }

    /// A record, whose callback nobody answers by having looked.
    pub(crate) fn shown_record(&self, record: Record, run: &Run) -> Record {
        let mut record = record.without_secret();
        record.entry = match record.entry {
            Entry::Done(json) => Entry::Done(self.shown_of(run, PayloadPlace::Record, &json)),
            Entry::Arrived(json) => Entry::Arrived(self.shown_of(run, PayloadPlace::Record, &json)),
            Entry::Failed(failure) => Entry::Failed(self.shown_failure(failure, Some(run))),
            Entry::TryFailed { failure, next_at } => {
                Entry::TryFailed { failure: self.shown_failure(failure, Some(run)), next_at }
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

    /// A line of a log, which may quote a payload.
    pub(crate) fn shown_line(&self, mut line: LogLine) -> LogLine {
        let Ok(json) = Json::of(&line.text) else { return line };
        let place = PayloadPlace::Log;
        let shown = self.shown(Payload { json: &json, place, workflow: None, run: None });
        line.text = shown.read().unwrap_or_else(|_| shown.as_str().to_owned());
        line
    }

    pub(crate) fn shown_key(&self, mut key: StepKey) -> StepKey {
        key.result = key.result.map(|json| {
            let place = PayloadPlace::StepKey;
            self.shown(Payload { json: &json, place, workflow: None, run: None })
        });
        key.failure = key.failure.map(|failure| self.shown_failure(failure, None));
        key
    }

    fn shown_failure(&self, failure: Failure, run: Option<&Run>) -> Failure {
        let Some(json) = failure.details.clone() else { return failure };
        let workflow = run.map(|run| run.workflow.as_str());
        let (place, run) = (PayloadPlace::Details, run.map(|run| run.id));
        let details = self.shown(Payload { json: &json, place, workflow, run });
        failure.details(&details)
    }
}
