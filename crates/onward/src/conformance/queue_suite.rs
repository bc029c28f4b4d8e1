//! The cases about queues with limits, which are part of the suite.
//!
//! Owns: which cases there are. Never what they say; that is `queues`, `limited`, `fair` and `gather`.

/// Makes one test of every case about queues and gathered starts, on stores that the given
/// [`Harness`](crate::conformance::Harness) opens. It is part of `conformance_suite`.
#[doc(hidden)]
#[macro_export]
macro_rules! queue_conformance_suite {
    ($harness:ty) => {
        $crate::conformance_cases! {
            $harness =>
            queues {
                put_queue_is_kept_as_asked
                put_queue_twice
                pause_queue_twice
                resume_queue_twice
                clear_queue_twice
                lost_answer_of_a_queue
                import_queue_twice
                imported_queue_keeps_its_grants_and_its_turn
                queues_come_in_pages
                queue_use_is_counted
                queues_set_up_are_bounded
                waiter_for_work_resolves_at_a_resume
                waiter_for_work_resolves_when_room_is_made
            }
            limited {
                paused_queue_gives_no_run
                start_into_a_limited_queue_is_not_claimed
                concurrency_holds_over_all_workers
                room_of_a_dead_worker_is_held_until_swept
                limited_claim_twice
                limited_claim_with_stale_lease
                limit_per_worker_holds_for_each
                rate_holds_for_each_claim
                rate_holds_in_every_period
                changed_limits_hold_at_the_next_claim
                limited_queue_beside_another
                concurrent_claims_keep_to_the_limits
                lane_limit_holds_for_each
                lanes_take_turns
                limit_of_one_keeps_the_order
                runs_without_a_lane_are_not_in_one
                runs_without_a_lane_are_found_behind_a_full_one
                suspect_is_held_to_the_limits
                run_kept_off_a_build_is_held_to_its_lane
                lane_past_the_bound_gets_its_turn
            }
            fair {
                light_lane_waits_one_turn_at_most
                light_lane_waits_one_turn_beside_a_second_queue
                light_lane_waits_one_turn_beside_a_second_limited_queue
                light_lane_waits_one_turn_beside_runs_without_a_lane
            }
            gather {
                debounced_run_has_the_last_input
                debounced_run_begins_in_the_longest_time
                debounced_start_after_the_begin_makes_a_new_run
                debounced_start_leaves_a_continuation_alone
                imported_run_is_met_again_for_a_while
                debounced_start_twice
                debounced_start_made_again_after_a_later_run
                old_gathered_starts_are_forgotten
                concurrent_debounced_starts_make_one_run
                throttled_run_has_the_first_input
                throttled_start_twice
            }
        }
    };
}
