//! The audit: rows that are kept once, with one outcome, for long enough.
//!
//! A store that keeps no audit passes by having no answer.

use super::stage::*;
use crate::AuditId;
use crate::limits::AUDIT_KEPT;
use crate::store::{AuditRow, Error, NewAudit};

fn new_row() -> NewAudit {
    let of = |text: &str| text.to_owned();
    let (action, target) = (of("cancel_run"), of("/runs/7"));
    NewAudit { id: AuditId::new(), who: of("ada"), role: of("operate"), action, target }
}

/// A row is there as it was written, without an outcome.
pub async fn audit_row_is_kept_as_written(stage: &Stage) {
    let Some(audit) = stage.store.audit() else { return };
    let new = new_row();
    audit.add_audit(new.clone()).await.unwrap();
    let page = stage.other.audit().unwrap().audits(None, 10).await.unwrap();
    assert_eq!((page.rows, page.more), (vec![AuditRow::of(new, stage.now())], false));
}

/// The same row again changes nothing.
pub async fn add_audit_twice(stage: &Stage) {
    let Some(audit) = stage.store.audit() else { return };
    let new = new_row();
    audit.add_audit(new.clone()).await.unwrap();
    let before = audit.audits(None, 10).await.unwrap();
    stage.pass(1_000);
    audit.add_audit(new).await.unwrap();
    assert_eq!(audit.audits(None, 10).await.unwrap(), before);
}

/// An outcome stays as it was said first, and belongs to a row that is there.
pub async fn end_audit_twice(stage: &Stage) {
    let Some(audit) = stage.store.audit() else { return };
    let new = new_row();
    audit.add_audit(new.clone()).await.unwrap();
    let end = |outcome: &str, detail: Option<&str>| {
        audit.end_audit(new.id, outcome.to_owned(), detail.map(str::to_owned))
    };
    end("ok", Some("run 7")).await.unwrap();
    end("run_finished", None).await.unwrap();
    let row = audit.audits(None, 10).await.unwrap().rows.remove(0);
    assert_eq!((row.outcome.as_deref(), row.detail.as_deref()), (Some("ok"), Some("run 7")));
    let unknown = audit.end_audit(AuditId::new(), "ok".to_owned(), None).await;
    assert!(matches!(unknown, Err(Error::NotFound)), "{unknown:?}");
}

/// Rows come newest first, page by page.
pub async fn audits_come_newest_first_in_pages(stage: &Stage) {
    let Some(audit) = stage.store.audit() else { return };
    let mut ids = Vec::new();
    for _ in 0..5 {
        let new = new_row();
        ids.insert(0, new.id);
        audit.add_audit(new).await.unwrap();
    }
    let first = audit.audits(None, 3).await.unwrap();
    assert!(first.more);
    let rest = audit.audits(first.rows.last().map(|row| row.id), 3).await.unwrap();
    assert!(!rest.more);
    let seen: Vec<_> = first.rows.iter().chain(&rest.rows).map(|row| row.id).collect();
    assert_eq!(seen, ids);
}

/// Rows of another store come in as they stood there, each once; what is there stays as it is.
pub async fn import_audits_twice(stage: &Stage) {
    let Some(audit) = stage.store.audit() else { return };
    let reference = stage.reference();
    let elsewhere = reference.store.audit().unwrap();
    let (ended, open) = (new_row(), new_row());
    elsewhere.add_audit(ended.clone()).await.unwrap();
    elsewhere.add_audit(open.clone()).await.unwrap();
    elsewhere.end_audit(ended.id, "ok".to_owned(), Some("run 7".to_owned())).await.unwrap();
    let rows = elsewhere.audits(None, 10).await.unwrap().rows;
    stage.pass(1_000);
    audit.add_audit(open.clone()).await.unwrap();
    assert_eq!(audit.import_audits(rows.clone()).await.unwrap(), 1, "one is there");
    let kept = audit.audits(None, 10).await.unwrap();
    assert_eq!(kept.rows, [AuditRow::of(open, stage.now()), rows[1].clone()]);
    assert_eq!(audit.import_audits(rows).await.unwrap(), 0);
    assert_eq!(audit.audits(None, 10).await.unwrap(), kept);
}

/// Rows that were kept for long enough go with the rows that come, more of them than come.
pub async fn old_audit_rows_go(stage: &Stage) {
    let Some(audit) = stage.store.audit() else { return };
    for _ in 0..5 {
        audit.add_audit(new_row()).await.unwrap();
    }
    stage.pass(AUDIT_KEPT.as_millis() as u64 + 1);
    for _ in 0..2 {
        audit.add_audit(new_row()).await.unwrap();
    }
    assert_eq!(audit.audits(None, 10).await.unwrap().rows.len(), 2);
}
