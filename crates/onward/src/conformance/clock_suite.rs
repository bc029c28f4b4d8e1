//! The cases about a clock that is set, which are part of the suite.
//!
//! Owns: which cases there are. Never what they check: that is in `clock_step`.

/// Makes one test of every case about a clock that is set, on stores that the given
/// [`Harness`](crate::conformance::Harness) opens. It is part of `conformance_suite`.
#[doc(hidden)]
#[macro_export]
macro_rules! clock_conformance_suite {
    ($harness:ty) => {
        $crate::conformance_cases! {
            $harness =>
            clock_step {
                lease_over_a_clock_step
                grant_over_a_clock_step
                throttle_over_a_clock_step
                debounce_max_over_a_clock_step
                debounce_over_a_clock_step
                delay_over_a_clock_step
                timer_over_a_clock_step
                deadline_over_a_clock_step
                run_key_over_a_clock_step
                step_key_result_over_a_clock_step
                step_key_hold_over_a_clock_step
                prune_age_over_a_clock_step
                schedule_over_a_clock_step
            }
        }
    };
}
