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
    Ok(streamed(app, filter, "text/csv; charset=utf-8", COLUMNS, |run| Ok(line(run))))
}

pub(crate) async fn jsonl(State(app): State<App>, params: Params) -> Answer {
    let filter = filter::of_params(&params)?;
    let line = |run: &Run| {
        let row = runs::row(run, &None)?;
        Ok(format!("{}\n", serde_json::to_string(&row).unwrap_or_default()))
    };
    Ok(streamed(app, filter, "application/jsonl", "", line))
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
    kind: &'static str,
    head: &'static str,
    line: impl Fn(&Run) -> Result<String, Problem> + Send + 'static,
) -> Response {
    let (send, receive) = mpsc::channel(PAGES_AHEAD);
    tokio::spawn(async move {
        if let Err(error) = pages(&app, filter, head, line, &send).await {
            // The status is sent already: an answer that breaks off says that it is not whole.
            let _ = send.send(Err(io::Error::other(error))).await;
        }
    });
    let mut response = Body::from_stream(Chunks(receive)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

type Chunk = Result<Bytes, io::Error>;

async fn pages(
    app: &App,
    filter: Filter,
    head: &str,
    line: impl Fn(&Run) -> Result<String, Problem>,
    send: &mpsc::Sender<Chunk>,
) -> Result<(), String> {
    let mut query = Query { filter, before: None, limit: PAGE_MAX };
    let (mut text, mut left) = (head.to_owned(), EXPORT_ROWS_MAX);
    loop {
        let page = app.onward.list(query.clone()).await.map_err(|error| error.to_string())?;
        for run in page.runs.iter().take(left) {
            text += &line(run).map_err(|problem| format!("{problem:?}"))?;
        }
        left = left.saturating_sub(page.runs.len());
        if page.more && left == 0 {
            text += &format!("# cut after {EXPORT_ROWS_MAX} rows\n");
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
    use super::*;

    #[test]
    fn a_cell_cannot_leave_its_place() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
        assert_eq!(quoted("=1+1"), "'=1+1");
    }
}
