//! The suite that every store must pass, public so that an outside store can prove itself.
//!
//! Owns: what the verbs of [`Store`](crate::store::Store) promise, as cases that could fail, and
//! the stage on which they play. Never names a store: [`Harness`] opens it.
//!
//! A store's own test file is three lines more than its harness:
//!
//! ```
//! use std::sync::Arc;
//!
//! use onward::TestClock;
//! use onward::conformance::Harness;
//! use onward::store::{MemoryStore, Store};
//!
//! struct Memory(Arc<MemoryStore>);
//!
//! impl Harness for Memory {
//!     async fn open(clock: TestClock) -> Self {
//!         Memory(Arc::new(MemoryStore::with_clock(Arc::new(clock))))
//!     }
//!
//!     fn store(&self) -> Arc<dyn Store> {
//!         self.0.clone()
//!     }
//! }
//!
//! onward::conformance_suite!(Memory);
//! # fn main() {}
//! ```
//!
//! Each case becomes one test on a fresh store. The crate that invokes the macro needs `tokio`
//! with the features `macros` and `rt-multi-thread`.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::wildcard_imports,
    reason = "cases are tests: to panic is how they fail"
)]

mod clock_suite;
mod every_kind;
mod key_suite;
mod look_suite;
mod queue_suite;
mod sample;
mod schedule_suite;
mod snapshot;
mod steering_suite;

pub mod audit;
pub mod cancel;
pub mod child;
pub mod child_again;
pub mod claim;
pub mod clock_step;
pub mod continuation;
pub mod crash;
pub mod delete;
pub mod fair;
pub mod firing;
pub mod fork;
pub mod gather;
pub mod key;
pub mod key_clock;
pub mod late;
pub mod lease;
pub mod limited;
pub mod line;
pub mod list;
pub mod looks;
pub mod lost_answer;
pub mod note;
pub mod park;
pub mod pause;
pub mod portable;
pub mod prune;
pub mod queues;
pub mod record;
pub mod replace;
pub mod retry;
pub mod schedules;
pub mod seen;
pub mod settle;
pub mod signal;
pub mod stage;
pub mod start;
pub mod step_key;
pub mod stuck;
pub mod sweep;
pub mod transact;
pub mod undo;
pub mod wait;
pub mod went_back;

pub use crate::store::lossy::{Death, Held, LossyStore};
pub use stage::{Harness, Snapshot, Stage};
pub use step_key::{KeyStage, KeysHarness};

/// Makes one test of every case, on stores that the given [`Harness`] opens.
#[macro_export]
macro_rules! conformance_suite {
    ($harness:ty) => {
        $crate::conformance_cases! {
            $harness =>
            start {
                started_run_is_queued_as_asked
                start_twice
                start_twice_after_the_end
                starts_are_answered_in_order
                one_refused_start_leaves_the_others
                delayed_start_waits
                delayed_start_is_noted
                timeout_counts_from_the_start_time
                past_start_time_is_due_now
                claimant_holds_the_new_run
                claimed_start_twice
                claimed_start_repeated_with_stale_lease
                start_by_claimant_with_stale_lease
                unknown_claimant_gets_nothing
                claimant_does_not_get_a_delayed_run
                runs_of_one_start_have_each_its_claimant
                claimant_does_not_get_an_existing_run
                claimant_does_not_get_a_replacing_run
            }
            key {
                concurrent_starts_with_one_key_make_one_run
                same_key_and_input_is_the_same_run
                same_key_with_another_input_is_refused
                same_key_of_another_workflow_is_another_run
                keys_are_compared_exactly
                one_key_twice_in_a_batch_is_one_run
                first_of_a_key_in_a_batch_is_started
                reject_refuses_the_same_input_too
                finished_run_keeps_its_key
                retry_failed_continues_a_failed_run
                retry_failed_start_twice
                retry_failed_leaves_other_runs_alone
                expired_key_is_free_and_its_run_stays
                duplicates_are_counted_and_told_apart
                duplicate_start_twice
                duplicates_kept_are_bounded
            }
            replace {
                replacing_a_queued_run_ends_it
                replacing_a_running_run_waits_for_its_end
                replaced_run_that_fails_lets_the_new_one_go
                replacing_a_waiting_run_waits_for_its_end
                replacing_a_run_behind_takes_its_place
                replacing_a_finished_run_starts_at_once
                replacing_run_keeps_its_delay
                replacing_start_twice
                replacing_run_waits_through_a_loss
            }
            signal {
                signals_are_numbered_in_order
                signal_twice
                signal_key_with_another_value_is_refused
                signal_to_a_finished_run_is_refused
                signal_wakes_a_run_that_waits_for_one
                signal_leaves_other_waits_alone
                signal_before_the_park_is_not_missed
                inbox_tells_marks_with_its_wakes
                claim_brings_the_signals_not_taken
                continuation_takes_the_signals_not_taken
                continuation_knows_the_signals_taken
                continuation_takes_the_signals_not_delivered
                continuation_is_told_no_ends_of_children
                signals_of_a_run_are_bounded
                signals_of_a_run_are_bounded_in_bytes
                inbox_comes_in_pages
                ends_of_children_come_in_pages
                signal_carries_any_text
            }
            child {
                start_of_a_child_twice
                start_of_a_child_with_stale_lease
                end_of_a_child_is_told
                end_of_a_child_is_told_once
                cancelled_child_is_told
                end_of_a_child_wakes_its_parent
                end_of_a_child_before_the_park_is_not_missed
                end_of_a_child_after_its_parents
                end_of_a_child_is_kept_for_a_failed_parent
                end_of_a_continued_child_is_told
                cancel_of_a_parent_reaches_its_children
                cancel_of_a_parent_that_fails_reaches_its_children
                other_ends_of_a_parent_leave_its_children_alone
                cancel_of_many_children_is_bounded
            }
            claim {
                claim_order_is_priority_then_due_time_then_id
                claim_raises_the_attempt_and_names_the_holder
                delayed_run_is_claimed_at_its_time
                woken_run_is_ordered_by_its_due_time
                claim_takes_only_what_it_serves
                claim_takes_no_more_than_its_limit
                claim_is_bounded
                claim_of_none_only_reads
                claim_tells_marks_to_the_holder_only
                claim_tells_the_next_due_time
                claim_brings_the_history_without_voided_records
                claim_tells_the_builds_of_earlier_attempts
                claim_twice
                claim_twice_after_a_settle
                claim_with_stale_lease
                claim_of_an_unknown_worker_is_refused
                concurrent_claims_never_share_a_run
                claim_racing_a_sweep_strands_no_run
            }
            lease {
                join_twice
                join_with_stale_lease
                renew_moves_the_lease
                renew_twice
                renew_says_what_is_held
                renew_with_stale_lease
                renew_of_an_unknown_worker_is_refused
                expired_lease_is_not_lost_until_swept
                lease_from_before_the_clock_was_set_back_has_expired
                lost_worker_can_do_nothing
                forgotten_worker_can_do_nothing
                leave_queues_its_runs_at_once
                leave_is_not_a_crash
                leave_twice
                leave_with_stale_lease
                leave_of_an_unknown_worker_is_no_error
                handles_share_the_leases
            }
            transact {
                transact_of_an_unknown_kind_is_refused
            }
            record {
                records_are_kept_as_written
                record_twice
                record_again_with_more_adds_the_rest
                record_with_stale_lease
                record_of_an_earlier_attempt_is_refused
                late_repeat_of_a_record_is_known
                late_record_that_differs_is_refused
                same_record_of_another_attempt_is_not_mine
                two_holders_cannot_finish_one_step
                second_result_of_a_step_is_refused_whole
                second_record_in_one_place_is_refused_whole
                one_place_twice_in_one_write_is_refused_whole
                settle_with_a_clash_is_refused_whole
                failed_tries_precede_one_result
                refused_record_leaves_its_neighbours
                ended_run_accepts_no_record
                record_on_an_unknown_run_is_refused
            }
            went_back {
                record_behind_what_is_there_is_added
                record_behind_what_is_gone_is_refused
                end_behind_what_is_gone_is_refused
                lost_lease_comes_before_what_is_gone
                what_is_behind_the_gone_leaves_its_neighbours
            }
            settle {
                completed_run_shows_its_output
                failed_run_shows_its_failure
                released_run_is_queued
                settle_completed_twice
                settle_failed_twice
                settle_cancelled_twice
                settle_continued_twice
                settle_parked_twice
                settle_parked_when_woken_twice
                settle_stuck_twice
                settle_released_twice
                settle_completed_with_stale_lease
                settle_failed_with_stale_lease
                settle_cancelled_with_stale_lease
                settle_continued_with_stale_lease
                settle_parked_with_stale_lease
                settle_stuck_with_stale_lease
                settle_released_with_stale_lease
                settle_under_another_attempt_is_refused
                late_repeat_of_a_park_is_known
                late_repeat_of_a_failed_settle_is_known
                late_repeat_of_a_settle_by_a_lost_worker_is_known
                unasked_steps_are_noted_on_the_run
            }
            park {
                parked_run_shows_what_it_waits_for
                due_timer_wakes_for_a_claim
                timer_due_while_nobody_lived_still_wakes
                park_until_a_past_time_is_due_at_once
                wake_before_the_park_queues_at_once
                wake_after_the_park_queues_the_run
                wake_before_the_claim_is_known_to_it
                wake_racing_a_park_is_never_lost
                wakes_are_counted_over_attempts
            }
            stuck {
                stuck_run_says_why
                stuck_run_is_kept_from_its_build
                another_build_gets_a_stuck_run
                stuck_run_remembers_every_build
                sweep_mends_only_what_it_serves
                cancelled_stuck_run_is_open_to_any_build
                late_stuck_run_is_open_to_any_build
                late_mended_run_is_open_to_any_build
                claim_takes_in_order_around_what_it_is_kept_off
                retry_opens_a_stuck_run
                wake_before_stuck_queues_at_once
            }
            cancel {
                cancelled_queued_run_ends_at_once
                cancelled_delayed_run_never_wakes
                cancelled_running_run_is_marked
                cancelled_waiting_run_is_queued_with_the_mark
                cancelled_queued_run_with_records_is_marked
                cancel_twice
                cancel_of_an_ended_run_is_refused
                cancel_of_a_cancelled_run_is_no_error
                cancelled_run_accepts_no_record
                completion_wins_over_a_mark
                mark_survives_a_lost_worker
                cancel_of_an_unknown_run_says_so
            }
            retry {
                retry_voids_the_failure_that_ended_the_run
                retried_step_is_recorded_again
                retry_without_a_failed_step_voids_nothing
                retried_run_has_its_whole_time_again
                retry_twice
                retry_of_a_run_that_did_not_fail_is_refused
                retry_is_forgotten_after_the_next_settle
                run_that_fails_again_is_retried_again
                retry_of_an_unknown_run_says_so
            }
            sweep {
                sweep_takes_the_runs_of_expired_workers
                sweep_twice
                sweep_with_stale_lease
                sweep_never_takes_itself
                sweep_leaves_expired_leases_when_told
                sweep_wakes_what_is_due
                sweep_of_due_runs_is_bounded
                sweep_of_lost_runs_is_bounded
                lost_worker_cannot_write_what_is_not_yet_taken
                sweep_of_stuck_runs_is_bounded
                concurrent_sweeps_take_each_run_once
            }
            crash {
                loss_without_a_record_counts
                loss_with_a_record_resets_the_count
                settle_resets_the_count
                suspect_waits_longer_each_time
                suspect_is_claimed_alone
                suspect_that_settles_is_one_no_more
                crash_loop_waits_for_help
                crash_loop_is_mended_by_another_build
                crash_loop_is_mended_by_a_retry
                marked_run_is_held_back
                marked_run_is_never_stuck
                late_run_is_never_stuck
                claimed_start_of_a_lost_worker_is_taken
            }
            lost_answer {
                lost_answer_of_a_start
                lost_answer_of_a_join
                lost_answer_of_a_signal
                lost_answer_of_a_renewal
                lost_answer_of_a_leave
                lost_answer_of_a_claim
                lost_answer_of_a_record
                lost_answer_of_a_record_before_a_loss
                lost_answer_of_a_settle
                lost_answer_of_a_release
                lost_answer_of_a_park_that_was_woken
                lost_answer_of_a_cancel
                lost_answer_of_a_retry
                lost_answer_of_a_sweep
                lost_answer_of_a_prune
                lost_answer_of_an_import
            }
            wait {
                waiter_made_before_a_settle_resolves
                waiter_for_work_resolves_at_a_start
                waiter_for_work_resolves_at_a_mark
                every_waiter_resolves_at_a_cancel
                waiter_for_work_resolves_at_a_retry
                waiter_for_work_resolves_at_a_takeover
                waiter_for_work_resolves_when_a_run_behind_is_let_go
            }
            list {
                run_is_found_by_id_and_by_key
                handles_share_the_runs
                every_filter_holds_back_what_does_not_fit
                filter_by_time_includes_its_beginning_only
                children_are_found_by_their_parent
                every_tag_of_a_filter_must_fit
                pages_are_stable_while_runs_are_added
                full_last_page_says_so
                page_is_bounded
                history_comes_in_pages
                history_of_an_unknown_run_says_so
                stats_count_runs_and_workers
                stats_leave_out_lost_workers
            }
            prune {
                prune_never_touches_live_runs
                prune_spares_young_runs
                prune_keeps_to_the_given_states
                prune_is_bounded
                prune_is_bounded_whatever_its_limit
                prune_with_no_limit_still_goes_on
                dry_run_deletes_nothing
                prune_twice
                prune_asks_the_children_of_cancelled_runs_to_end
                prune_frees_the_keys_of_pruned_runs_only
                prune_leaves_a_key_that_went_on
                prune_takes_the_history_along
                prune_takes_an_imported_run_whole
            }
            undo {
                undone_run_is_not_retried
                undone_steps_are_not_forked
                run_on_its_way_back_is_not_retried
                run_stuck_on_its_way_back_goes_on
                undo_begins_once
                undo_begins_with_stale_lease
            }
            portable {
                every_kind_of_run_goes_out_whole
                every_kind_of_run_comes_in_whole
                every_field_is_kept
                export_goes_by_id_and_is_bounded
                export_is_bounded_in_bytes
                import_twice
                import_with_more_adds_the_rest
                import_that_differs_is_refused_whole
                import_with_a_taken_key_is_refused_whole
                import_of_one_run_twice_is_refused_whole
                import_with_one_key_for_two_is_refused_whole
                import_takes_over_an_expired_key
                expired_hold_is_left_out
                dry_import_changes_nothing
                concurrent_imports_add_each_run_once
                imported_key_is_held_by_the_same_run
                imported_run_is_found_by_every_filter
                imported_run_goes_on_with_its_history
                imported_run_of_a_missing_worker_is_taken_back
                imported_failed_run_is_retried_at_its_step
                imported_run_behind_is_let_go
                imported_timer_wakes
                imported_cascade_reaches_the_children
                imported_stuck_run_is_mended
                late_repeat_of_a_settle_is_known_after_an_import
                waiter_for_work_resolves_at_an_import
            }
        }
        $crate::schedule_conformance_suite!($harness);
        $crate::steering_conformance_suite!($harness);
        $crate::queue_conformance_suite!($harness);
        $crate::look_conformance_suite!($harness);
        $crate::clock_conformance_suite!($harness);
    };
}

/// Makes one test of each case that is named, by subject.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($harness:ty => $($subject:ident { $($case:ident)* })*) => {
        $(
            mod $subject {
                #[allow(unused_imports, reason = "the harness may be named by its path")]
                use super::*;
                $(
                    #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $case() {
                        let stage = $crate::conformance::Stage::open::<$harness>().await;
                        $crate::conformance::$subject::$case(&stage).await;
                    }
                )*
            }
        )*
    };
}
