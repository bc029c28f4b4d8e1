//! `/runs.csv` and `/runs.jsonl`: the runs of a filter, streamed.
//!
//! Owns: the two forms. Never holds more than a page in memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use onward::{Filter, Query, Run};
use tokio::sync::mpsc;

use super::{filter, runs};
use crate::answer::Answer;
use crate::app::App;
use crate::limits::{EXPORT_ROWS_MAX, PAGE_MAX};
use crate::problem::Problem;
use crate::request::Params;

/// Pages that wait for the reader: one is read while another is sent.
const PAGES_AHEAD: usize = 2;

const COLUMNS: &str = "id,workflow,state,queue,priority,key,attempt,created_at,started_at,finished_at,failure_code,\
     failure_message,duplicates,tags\n";

pub(crate) async fn csv(State(app): State<App>, params: Params) -> Answer {
    let filter = filter::of_params(&params)?;
    let form = Form {
        kind: "text/csv; charset=utf-8",
        head: COLUMNS,
        rows: EXPORT_ROWS_MAX,
        cut: csv_cut,
    };
    Ok(streamed(app, filter, form, |run| Ok(line(run))))
}

pub(crate) async fn jsonl(State(app): State<App>, params: Params) -> Answer {
    let filter = filter::of_params(&params)?;
    let line = |run: &Run| {
        let row = runs::row(run, &None)?;
        Ok(format!("{}\n", serde_json::to_string(&row).unwrap_or_default()))
    };
    let form = Form { kind: "application/jsonl", head: "", rows: EXPORT_ROWS_MAX, cut: jsonl_cut };
    Ok(streamed(app, filter, form, line))
}

/// What the two forms differ in, besides their lines.
#[derive(Clone, Copy)]
struct Form {
    kind: &'static str,
    head: &'static str,
    /// How many rows it may have.
    rows: usize,
    /// The last line, where there were more rows than this.
    cut: fn(usize) -> String,
}

fn csv_cut(rows: usize) -> String {
    format!("# cut after {rows} rows\n")
}

/// A line of JSON as the others: whoever reads them all must be able to read it.
fn jsonl_cut(rows: usize) -> String {
    format!("{}\n", serde_json::json!({ "cut": true, "rows": rows }))
}

fn line(run: &Run) -> String {
    let time = |time: Option<onward::Timestamp>| time.map(|time| time.to_string());
    let (code, message) = match &run.failure {
        Some(failure) => (failure.code.clone(), failure.message.clone()),
        None => Default::default(),
    };
    let tags: Vec<_> = run.tags.iter().map(|(name, value)| format!("{name}:{value}")).collect();
    let cells = [
        run.id.to_string(),
        run.workflow.clone(),
        run.state.to_string(),
        run.queue.clone(),
        run.priority.to_string(),
        run.key.clone().unwrap_or_default(),
        run.attempt.to_string(),
        run.created_at.to_string(),
        time(run.started_at).unwrap_or_default(),
        time(run.finished_at).unwrap_or_default(),
        code,
        message,
        run.duplicates.to_string(),
        tags.join(" "),
    ];
    let cells: Vec<_> = cells.iter().map(|cell| quoted(cell)).collect();
    format!("{}\n", cells.join(","))
}

/// A cell. What a spreadsheet would take for a formula is made a text.
fn quoted(cell: &str) -> String {
    let cell = match cell.chars().next() {
        Some('=' | '+' | '-' | '@' | '\t' | '\r') => format!("'{cell}"),
        _ => cell.to_owned(),
    };
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    }
}

fn streamed(
    app: App,
    filter: Filter,
    form: Form,
    line: impl Fn(&Run) -> Result<String, Problem> + Send + 'static,
) -> Response {
    let (send, receive) = mpsc::channel(PAGES_AHEAD);
    tokio::spawn(async move {
        if let Err(error) = pages(&app, filter, form, line, &send).await {
            // The status is sent already: an answer that breaks off says that it is not whole.
            let _ = send.send(Err(io::Error::other(error))).await;
        }
    });
    let mut response = Body::from_stream(Chunks(receive)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(form.kind));
    response
}

type Chunk = Result<Bytes, io::Error>;

async fn pages(
    app: &App,
    filter: Filter,
    form: Form,
    line: impl Fn(&Run) -> Result<String, Problem>,
    send: &mpsc::Sender<Chunk>,
) -> Result<(), String> {
    let mut query = Query { filter, before: None, limit: PAGE_MAX };
    let (mut text, mut left) = (form.head.to_owned(), form.rows);
    loop {
        let page = app.onward.list(query.clone()).await.map_err(|error| error.to_string())?;
        for run in page.runs.iter().take(left) {
            text += &line(run).map_err(|problem| format!("{problem:?}"))?;
        }
        let cut = page.runs.len() > left || (page.more && page.runs.len() == left);
        left = left.saturating_sub(page.runs.len());
        if cut {
            text += &(form.cut)(form.rows);
        }
        let gone = send.send(Ok(Bytes::from(std::mem::take(&mut text)))).await.is_err();
        if gone || !page.more || left == 0 {
            return Ok(());
        }
        query.before = page.runs.last().map(|run| run.id);
    }
}

/// What a task sends, as the body of an answer.
pub(crate) struct Chunks(pub(crate) mpsc::Receiver<Chunk>);

impl Stream for Chunks {
    type Item = Chunk;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Chunk>> {
        self.0.poll_recv(cx)
    }
}

#[cfg(test)]
mod tests {
    use onward::{Onward, Workflow};
    use tokio::sync::watch;

    use super::*;
    use crate::app::Phase;
    use crate::options::{Access, Options, Role};

    #[tokio::test]
    async fn what_is_cut_says_so_in_its_own_form() {
        const WORK: Workflow<u32, ()> = Workflow::named("work");
        let onward = Onward::open("memory:").await.unwrap();
        onward.start_many(WORK, 0..3).await.unwrap();
        let (_, phase) = watch::channel(Phase::Up);
        let app = App::new(onward, Options::new(Access::Open(Role::Read)), phase);
        let exported = async |form: Form| {
            let (send, mut receive) = mpsc::channel(PAGES_AHEAD);
            let line = |run: &Run| Ok(format!("\"{}\"\n", run.id));
            pages(&app, Filter::default(), form, line, &send).await.unwrap();
            String::from_utf8(receive.recv().await.unwrap().unwrap().to_vec()).unwrap()
        };
        let jsonl = Form { kind: "", head: "", rows: 2, cut: jsonl_cut };
        let cut = exported(jsonl).await;
        let lines: Vec<serde_json::Value> =
            cut.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[2], serde_json::json!({ "cut": true, "rows": 2 }));
        assert_eq!(exported(Form { rows: 3, ..jsonl }).await.lines().count(), 3, "it is whole");
        let csv = exported(Form { cut: csv_cut, rows: 1, ..jsonl }).await;
        assert!(csv.ends_with("# cut after 1 rows\n"), "{csv}");
    }

    #[test]
    fn a_cell_cannot_leave_its_place() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
        assert_eq!(quoted("=1+1"), "'=1+1");
    }
}
