//! The suite that every place of step keys must pass.
//!
//! Owns: which cases there are. Never what they say; that is in `step_key` and `key_clock`.

/// Makes one test of every case about step keys, in places that the given [`KeysHarness`](crate::conformance::KeysHarness) opens.
#[macro_export]
macro_rules! key_conformance_suite {
    ($harness:ty) => {
        $crate::key_conformance_cases! {
            $harness =>
            step_key {
                free_key_is_taken
                take_twice
                concurrent_takes_have_one_holder
                busy_key_tells_its_times
                settled_result_goes_to_everybody
                settle_twice
                settle_with_stale_lease
                late_settle_is_kept_while_nobody_took_over
                renew_key_twice
                renew_key_with_stale_lease
                later_attempt_takes_over
                own_result_is_found_again
                freed_key_is_taken_by_the_next
                free_with_stale_lease_changes_nothing
                kept_failure_goes_to_everybody
                result_is_forgotten_after_its_time
                token_rises_with_every_hold
                other_input_is_refused
                key_duplicates_are_counted_and_told_apart
                key_duplicates_are_counted_for_each_hold
                key_duplicates_kept_are_bounded
                released_key_is_free
                step_keys_are_compared_exactly
                keys_are_listed_in_pages
                handles_share_the_keys
                import_key_twice
                import_of_another_key_is_refused
                waiter_resolves_at_the_end_of_a_hold
            }
            key_clock {
                clock_set_forward_leaves_a_key_to_its_holder
                expired_hold_is_not_forgotten_at_once
                hold_that_stays_expired_is_taken_over
                hold_that_is_long_over_is_free_to_anybody
                expired_hold_with_another_input_is_waited_for
            }
        }
    };
}

/// Makes one test of each case about step keys that is named.
#[doc(hidden)]
#[macro_export]
macro_rules! key_conformance_cases {
    ($harness:ty => $($module:ident { $($case:ident)* })*) => {
        $(mod $module {
            #[allow(unused_imports, reason = "the harness may be named by its path")]
            use super::*;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let stage = $crate::conformance::KeyStage::open::<$harness>().await;
                    $crate::conformance::$module::$case(&stage).await;
                }
            )*
        })*
    };
}
