//! The cases of steering runs, as one macro of the suite.
//!
//! Owns: which cases there are. Never what they say; `pause`, `fork`, `note`, `continuation`, `seen`,
//! `child_again`, `late` and `line` do.

/// Makes one test of every case about pausing, forking, noting and continuing. It is part of
/// `conformance_suite`.
#[doc(hidden)]
#[macro_export]
macro_rules! steering_conformance_suite {
    ($harness:ty) => {
        $crate::conformance_cases! {
            $harness =>
            pause {
                paused_queued_run_is_not_claimed
                paused_run_is_not_the_oldest_that_is_due
                paused_running_run_is_marked
                pause_before_the_park_is_not_missed
                paused_run_keeps_a_due_timer
                resumed_run_waits_as_it_was
                paused_run_keeps_a_signal
                paused_delayed_run_begins_after_both
                pause_twice
                resume_twice
                pause_of_an_ended_run_is_refused
                pause_of_a_run_that_is_to_end_is_refused
                pause_of_an_unknown_run_says_so
                cancel_of_a_paused_run_goes_through
                retry_of_a_paused_run_goes_through
                deadline_of_a_paused_run_holds
                deadline_of_a_paused_stuck_run_holds
                pause_survives_a_lost_worker
                pause_goes_on_with_the_continuation
                lost_answer_of_a_pause
                deadline_of_a_run_behind_holds
            }
            fork {
                fork_begins_with_the_records_before_its_step
                fork_goes_on_from_its_step
                fork_takes_another_input
                fork_from_the_first_step_is_fresh
                live_and_failed_runs_are_forked
                fork_keeps_what_a_retry_voided
                fork_takes_no_undo_along
                fork_numbers_signals_on
                fork_with_an_open_child_is_refused
                fork_with_a_retried_child_is_refused
                fork_with_an_open_callback_is_refused
                retry_of_a_fork_takes_out_the_child_that_failed_it
                fork_from_an_unknown_step_says_so
                fork_twice
                fork_takes_a_free_key
            }
            note {
                notes_are_kept_as_written
                note_twice
                note_with_stale_lease
                ended_run_takes_no_notes
                changed_tags_are_listed_by
                log_is_bounded
                log_comes_in_pages
                prune_takes_the_log_along
            }
            continuation {
                continuation_inherits_all_but_the_history
                continuation_takes_the_key
                marked_run_does_not_go_on
                continuation_onto_a_run_that_is_there_is_refused_whole
                late_repeat_of_a_continuation_is_known
                run_behind_moves_along
                cancel_reaches_the_children_of_the_runs_before
            }
            seen {
                retry_of_a_run_as_it_was_seen
                retry_seen_twice
                retry_of_a_stuck_run_as_it_was_seen
                retry_seen_of_what_allows_none_is_refused
            }
            child_again {
                retry_of_a_parent_retries_its_failed_child
                retry_of_a_parent_twice
                retry_of_a_parent_hears_of_a_child_that_completed_since
                retry_of_a_parent_awaits_a_child_that_goes_on
                retry_of_a_parent_leaves_a_cancelled_child
                retry_reaches_down_to_the_grandchild
                cascade_reaches_children_at_once
                cascade_reaches_grandchildren
                cascade_is_bounded
                lost_answer_of_a_cascade
                cascade_reaches_children_while_their_parent_goes_on
                child_of_a_run_that_is_to_end_is_asked_too
            }
            late {
                late_run_that_nobody_serves_fails
                late_run_with_nothing_to_undo_fails
                late_run_that_is_retried_knows_no_settle_of_a_lost_attempt
                late_run_that_never_began_has_no_attempt
                late_run_that_is_held_is_left_to_its_holder
                late_run_with_something_to_undo_waits_for_a_worker
                late_run_on_its_way_back_waits_as_it_does
                late_cancelled_run_ends_as_cancelled
                sweep_of_late_runs_is_bounded
                end_of_a_late_run_is_told
                child_has_no_more_time_than_its_parent
                retry_of_a_late_parent_retries_its_late_children
                retry_of_a_late_parent_leaves_its_other_children
                retry_of_a_late_parent_twice
                retried_child_has_its_own_time_again
            }
            line {
                missed_times_wait_one_behind_the_other
                late_run_leaves_its_place_in_the_line
                cancelled_run_leaves_its_place_in_the_line
                start_after_a_run_that_ended_before_its_turn_waits
                retried_run_takes_its_place_in_the_line_again
                retried_run_waits_though_its_place_was_taken
                retried_run_waits_for_no_line_that_is_over
                schedule_sees_past_a_run_that_ended_before_its_turn
                schedule_sees_past_it_to_a_continuation
            }
        }
    };
}
