//! The cases about schedules, which are part of the suite.
//!
//! Owns: which cases there are. Never what they check: that is in `schedules` and `firing`.

/// Makes one test of every case about schedules, on stores that the given
/// [`Harness`](crate::conformance::Harness) opens. It is part of `conformance_suite`.
#[doc(hidden)]
#[macro_export]
macro_rules! schedule_conformance_suite {
    ($harness:ty) => {
        $crate::conformance_cases! {
            $harness =>
            schedules {
                put_schedule_is_kept_as_asked
                put_schedule_twice
                put_again_moves_the_next_time_back
                put_leaves_what_was_fired_and_what_came_before
                put_by_a_clock_before_the_schedule_moves_nothing
                other_times_are_another_generation
                other_input_leaves_the_times
                concurrent_puts_make_one_schedule
                schedules_come_in_pages
                schedule_is_due_at_its_time
                due_schedules_are_bounded
                pause_schedule_twice
                resume_schedule_twice
                remove_schedule_twice
                import_schedule_twice
                waiter_for_schedules_resolves_at_a_put
            }
            firing {
                fired_run_is_as_the_schedule_says
                fire_schedule_twice
                lost_answer_of_a_firing
                concurrent_firings_start_one_run
                firing_by_an_old_look_is_late
                firing_of_nothing_moves_on
                time_that_has_its_run_starts_no_other
                time_whose_key_is_taken_is_refused_alone
                skip_starts_nothing_beside_a_live_run
                allow_starts_beside_a_live_run
                cancel_previous_starts_behind_the_run_it_ends
                buffer_one_lets_one_run_wait
                buffering_racing_the_end_strands_no_run
                continuation_of_the_latest_run_is_live
                buffer_one_waits_for_a_continuation
                cancel_previous_ends_a_continuation
                trigger_twice
                full_firing_starts_every_run
            }
        }
    };
}
