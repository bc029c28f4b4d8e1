//! The cases about looks at keys, deleting and the audit, which are part of the suite.
//!
//! Owns: which cases there are. Never what they say; that is `looks`, `delete` and `audit`.

/// Makes one test of every case about what operators look at and delete, on stores that the given
/// [`Harness`](crate::conformance::Harness) opens. It is part of `conformance_suite`.
#[doc(hidden)]
#[macro_export]
macro_rules! look_conformance_suite {
    ($harness:ty) => {
        $crate::conformance_cases! {
            $harness =>
            looks {
                run_keys_come_by_prefix_in_pages
                run_keys_are_told_apart_by_workflow
                top_keys_are_the_most_duplicated
                key_conflicts_come_newest_first
                runs_are_counted_by_the_minute
                ends_are_counted_once_from_one_to_the_next
            }
            delete {
                deleted_run_leaves_nothing
                delete_run_twice
                children_of_a_deleted_run_are_asked_to_end
                live_run_is_not_deleted
                released_key_is_free
                release_run_key_twice
                release_of_no_key_changes_nothing
                live_run_keeps_its_key
            }
            audit {
                audit_row_is_kept_as_written
                add_audit_twice
                end_audit_twice
                audits_come_newest_first_in_pages
                import_audits_twice
                old_audit_rows_go
            }
        }
    };
}
