//! A table with aligned columns.
//!
//! Owns: widths and colours. Never decides whether colours are shown; the stream does.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use onward::RunState;

/// One cell: a text and how it is coloured.
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A plain cell.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), style: Style::new() }
    }

    /// A cell in this style.
    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::new(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::new(text)
    }
}

impl From<RunState> for Cell {
    fn from(state: RunState) -> Self {
        Cell::styled(state.as_str(), style_of(state))
    }
}

/// How a state is coloured, everywhere.
pub(crate) fn style_of(state: RunState) -> Style {
    let colour = match state {
        RunState::Completed => AnsiColor::Green,
        RunState::Failed => AnsiColor::Red,
        RunState::Cancelled => AnsiColor::Yellow,
        RunState::Running => AnsiColor::Cyan,
        RunState::Queued | RunState::Waiting => AnsiColor::Blue,
    };
    Style::new().fg_color(Some(colour.into()))
}

/// The style of what is said beside the point.
pub(crate) const DIM: Style = Style::new().dimmed();

/// The style of a heading.
pub(crate) const BOLD: Style = Style::new().bold();

/// Rows under heads.
pub(crate) struct Table<const N: usize> {
    heads: [&'static str; N],
    widths_min: [usize; N],
    rows: Vec<[Cell; N]>,
}

impl<const N: usize> Table<N> {
    /// An empty table. Without heads (all of them empty) only the rows are written.
    pub(crate) fn new(heads: [&'static str; N]) -> Self {
        Self { heads, widths_min: [0; N], rows: Vec::new() }
    }

    /// Columns of at least these widths, for rows that are written one by one.
    pub(crate) fn at_least(self, widths_min: [usize; N]) -> Self {
        Self { widths_min, ..self }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, row: [Cell; N]) {
        self.rows.push(row);
    }

    /// Writes the table. The last column is not padded.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let widths = self.widths();
        if self.heads.iter().any(|head| !head.is_empty()) {
            let heads = self.heads.map(|head| Cell::styled(head, DIM));
            write_row(out, &heads, &widths)?;
        }
        self.rows.iter().try_for_each(|row| write_row(out, row, &widths))
    }

    fn widths(&self) -> [usize; N] {
        let mut widths = self.widths_min;
        for (width, head) in widths.iter_mut().zip(self.heads) {
            *width = (*width).max(head.chars().count());
        }
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        widths
    }
}

fn write_row<const N: usize>(
    out: &mut dyn Write,
    row: &[Cell; N],
    widths: &[usize; N],
) -> io::Result<()> {
    for (place, (cell, width)) in row.iter().zip(widths).enumerate() {
        let style = cell.style;
        write!(out, "{style}{}{style:#}", cell.text)?;
        if row[place + 1..].iter().any(|cell| !cell.text.is_empty()) {
            let gap = width - cell.text.chars().count() + 2;
            write!(out, "{:gap$}", "")?;
        }
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_no_line_ends_in_blanks() {
        let mut table = Table::new(["id", "state", "key"]);
        table.row(["1".into(), RunState::Completed.into(), "".into()]);
        table.row(["22".into(), RunState::Failed.into(), "k".into()]);
        let mut out = anstream::StripStream::new(Vec::new());
        table.write(&mut out).unwrap();
        let text = String::from_utf8(out.into_inner()).unwrap();
        assert_eq!(text, "id  state      key\n1   completed\n22  failed     k\n");
    }
}
