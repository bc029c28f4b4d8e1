//! The table of stable codes.
//!
//! Owns: every code that a caller, the command line or another language may branch on, and the
//! sentence that says what to do. Never a message about one particular run; that is the error's.
//! `docs/errors.md` has a section for each row.

use std::fmt;

macro_rules! codes {
    ($($variant:ident = $name:literal, $retryable:literal, $advice:literal;)*) => {
        /// What went wrong, as a stable name.
        ///
        /// ```
        /// use onward::Code;
        ///
        /// assert_eq!(Code::KeyConflict.as_str(), "key_conflict");
        /// assert!(Code::all().iter().all(|code| !code.advice().is_empty()));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $advice] $variant,)*
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const fn all() -> &'static [Code] {
                &[$(Code::$variant),*]
            }

            /// The name, as it is written in logs, tables, HTTP bodies and other languages.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $name),* }
            }

            /// Whether the same call may succeed later without a change.
            pub const fn is_retryable(self) -> bool {
                match self { $(Code::$variant => $retryable),* }
            }

            /// What happened and what to do, in a sentence or two.
            pub const fn advice(self) -> &'static str {
                match self { $(Code::$variant => $advice),* }
            }
        }
    };
}

codes! {
    // Opening a store, and a store that does not answer.
    UnknownStoreUrl = "unknown_store_url", false,
        "The store URL is not one of sqlite:PATH, postgres://HOST/DATABASE or memory:.";
    InvalidStorePath = "invalid_store_path", false,
        "The path of the database is a folder, or is in a folder that does not exist. Correct it.";
    StoreUnavailable = "store_unavailable", true,
        "The store did not answer, or refused. Nothing is lost: mend what it says, or repeat the call \
         with the same key.";
    StoreLocked = "store_locked", true,
        "Another program holds a lock on the database. End what it does, or wait and repeat.";
    StoreFull = "store_full", true,
        "The disk is full. Free some space; running work goes on by itself afterwards.";
    StoreReadOnly = "store_read_only", false,
        "The store cannot be written. A file: check owner and mode, of its folder too. Postgres: a standby \
         was reached; name all hosts in the URL, or set target_session_attrs=read-write.";
    StoreReplaced = "store_replaced", false,
        "The database file was deleted or replaced while it was open. Restart the program.";
    StoreCorrupt = "store_corrupt", false,
        "The database is not a store of ours, or is damaged. Check its path or schema; restore a \
         damaged one.";
    StoreNotDurable = "store_not_durable", false,
        "The database would lose what it said it kept. Turn fsync and synchronous_commit on.";
    SchemaMissing = "schema_missing", false,
        "There is no store in this database. Check its name and schema; whoever may create one does.";
    SchemaTooOld = "schema_too_old", false,
        "The database was written by an older version. Open it once without create=false.";
    SchemaTooNew = "schema_too_new", false,
        "The database was written by a newer version. Upgrade this program.";

    // Input that is refused before anything is written.
    InvalidName = "invalid_name", false,
        "A workflow, queue, tag or key is empty or too long.";
    NulCharacter = "nul_character", false,
        "A name or key holds a NUL character, which databases cannot keep. Remove it.";
    InvalidId = "invalid_id", false,
        "This is not an id. Ids look like 01890a5d-ac96-774b-bcce-b302099a8057.";
    InvalidOption = "invalid_option", false,
        "An option is not known, or is outside its limits.";
    NotSerializable = "not_serializable", false,
        "The value has no JSON form or does not read back from it, as a map without string keys or NaN.";
    PayloadTooLarge = "payload_too_large", false,
        "The value is larger than 2 MiB of JSON. Store it elsewhere and pass its address.";
    TypeMismatch = "type_mismatch", false,
        "A stored value does not fit the type it is read as. Start with an input of that type, and keep \
         old fields readable.";

    // Payload codecs.
    PayloadUnreadable = "payload_unreadable", false,
        "A stored payload cannot be read here. Give this program the key or codec that is named.";
    InvalidKeyRing = "invalid_key_ring", false,
        "The keys of encrypted payloads cannot be read, or one is missing. Correct the key ring.";

    // Keys and runs.
    KeyConflict = "key_conflict", false,
        "This key was used with another input. Use another key, or send the same input.";
    KeyTaken = "key_taken", false,
        "This key is in use and the caller asked to be refused in that case.";
    KeyFailed = "key_failed", false,
        "The work under this key failed; the failure says why. Its key is free, unless that is kept.";
    KeysUnsupported = "keys_unsupported", false,
        "This store keeps no step keys. Use another, or name a place for them when it is opened.";
    RunNotFound = "run_not_found", false,
        "There is no such run in this store. It may have been pruned.";
    KeyNotFound = "key_not_found", false,
        "No run of that workflow has this key. It may have expired.";
    RunFinished = "run_finished", false,
        "The run has ended, so it can no longer be changed.";
    RunNotEnded = "run_not_ended", false,
        "Only a run that has ended can be deleted, or give up its key. Cancel it first.";
    RunNotFailed = "run_not_failed", false,
        "Only a failed or stuck run can be retried.";
    StepNotFound = "step_not_found", false,
        "The run has no record of this step, so it cannot be forked from there.";
    ForkRefused = "fork_refused", false,
        "A child's end or a callback's answer comes only to the first run. Fork from before the child \
         or callback was started, or from after its end or answer.";
    VerbUnsupported = "verb_unsupported", false,
        "This store has no such verb: it cannot pause, fork, delete or keep a log.";
    RunUndone = "run_undone", false,
        "The run has turned back and undoes what it did, or has done so. Start a new one instead.";
    CallbackUnknown = "callback_unknown", false,
        "No run has issued this token. Check that it came whole.";
    CallbackUsed = "callback_used", false,
        "This token was answered before, with something else. The first answer counts.";
    CallbackExpired = "callback_expired", false,
        "It is too late to answer: the token's time is over, or its run has ended.";
    SignalsFull = "signals_full", false,
        "A run may be sent 10,000 signals, and 16 MiB of them in all. Let it continue with ctx.continue_as.";
    RunFailed = "run_failed", false,
        "The run failed. The failure says why; retry continues from the step that failed.";
    RunCancelled = "run_cancelled", false,
        "The run was cancelled.";
    NoTransaction = "no_transaction", false,
        "The connection has no transaction open that a run could be started in. Begin one first.";
    OtherDatabase = "other_database", false,
        "The connection is not to the store's own database. Open it on the file of the store.";

    // Schedules.
    InvalidSchedule = "invalid_schedule", false,
        "The times of a schedule cannot be read, or never come. Correct the pattern or the zone.";
    ScheduleNotFound = "schedule_not_found", false,
        "There is no schedule of this name in this store.";
    SchedulesUnsupported = "schedules_unsupported", false,
        "This store does not keep schedules.";

    // Queues.
    QueuesFull = "queues_full", false,
        "A thousand queues have limits or are paused, as many as may be. Clear some, or use lanes.";
    QueuesUnsupported = "queues_unsupported", false,
        "The queues of this store cannot be limited or paused.";

    // Copying a store.
    StoreServed = "store_served", false,
        "A live worker serves a store that is to be copied. Stop all workers and callers, then copy.";
    CopyConflict = "copy_conflict", false,
        "The destination has this run, schedule or queue and it differs, or has its key for another run. Nothing of it was changed.";
    StoreChanged = "store_changed", false,
        "A store changed while it was copied. Stop workers and callers, and copy into an empty one.";
    CopyUnsupported = "copy_unsupported", false,
        "This store does not know how to give out or take in whole runs.";

    // The HTTP server.
    Unauthorized = "unauthorized", false,
        "The server asks for a token, and none came or it is not one of its own.";
    Forbidden = "forbidden", false,
        "The role of this caller does not allow that, or the request came from another site.";
    RateLimited = "rate_limited", true,
        "This caller asks more often than it may. Wait as long as the answer says, then repeat.";
    InvalidRequest = "invalid_request", false,
        "A part of the request cannot be read. The answer says which; correct it.";
    NoSuchPath = "no_such_path", false,
        "The server has nothing at this path, or not for this method.";
    RunInFlight = "run_in_flight", true,
        "The first request with this key is still at work. Wait, then repeat the same request.";
    NotSupported = "not_supported", false,
        "This server or its store cannot do that.";

    // Workers.
    LeaseLost = "lease_lost", true,
        "The worker did not renew its lease in time, and its runs went on elsewhere.";
    WorkflowServedTwice = "workflow_served_twice", false,
        "The worker was given two functions for one workflow name. Keep one.";
    NothingServed = "nothing_served", false,
        "The worker serves no workflow. Call serve before start.";
    WorkerStopped = "worker_stopped", false,
        "The thread that renews the worker's lease could not be started.";

    // Failures that the engine itself gives to a workflow or a run.
    Failed = "failed", true,
        "The code of a failure that named none.";
    Panic = "panic", true,
        "User code panicked. The message is the panic's.";
    Timeout = "timeout", true,
        "A try of a step took longer than its timeout.";
    TransactionTimeout = "transaction_timeout", true,
        "The body of a transaction took too long and was undone. Move its slow part to a step.";
    TransactionEnded = "transaction_ended", false,
        "The body of a transaction ended it, so nothing was kept. Leave commit and rollback to ctx.";
    TransactionUnsupported = "transaction_unsupported", false,
        "This store has no such transactions. Use the store that it is for, or write ctx.step.";
    Interrupted = "interrupted", false,
        "An at-most-once step was interrupted, so it is not executed again.";
    DeadlineExceeded = "deadline_exceeded", false,
        "The run did not finish within its timeout.";
    HistoryFull = "history_full", false,
        "The run has too many records. Go on with ctx.continue_as before the limit.";
    UndoFailed = "undo_failed", false,
        "Not all of the run could be undone. The failure's details list what is left: mend it by hand.";
    UndoMissing = "undo_missing", false,
        "The step had an undo when its run turned back, and the code that went on has none for it.";
    StepIdTaken = "step_id_taken", false,
        "Two steps of one run have the same explicit id. Make the ids differ.";
    AmbiguousOrder = "ambiguous_order", false,
        "Two branches of select! or join! use the same name, so a replay may swap their results. Give each \
         step, sleep or child an id of its own.";
    StepOutsideRun = "step_outside_run", false,
        "A step was polled outside its run, as in tokio::spawn. Use join! or join_all instead.";
    StepNested = "step_nested", false,
        "A step was used inside another step's body. Make it a step of the workflow function.";
    RunEnded = "run_ended", false,
        "A Ctx was used after its run ended. Keep it inside the workflow function.";

    // Why a run waits for an operator or a new build.
    CrashLoop = "crash_loop", false,
        "The process died ten times in a row in this run. Mend it, deploy, or retry the run.";
    HistoryMismatch = "history_mismatch", false,
        "The function asks for other steps than it recorded. Make it deterministic, deploy.";
    KeyChanged = "key_changed", false,
        "A step has another key than it was recorded with. Do not make keys from clocks or chance.";
    ForeignAwait = "foreign_await", false,
        "The function awaited something that is not from ctx, and replay went another way.";
    CorruptRecord = "corrupt_record", false,
        "A stored row of this run cannot be read. Restore it from a backup, then retry the run.";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
