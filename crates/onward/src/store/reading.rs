//! Pages in the order of names, where some rows may be unreadable.
//!
//! Owns: that an unreadable row does not count towards the page's size, and is listed by name. Never reads a row.

/// Rows as they are read by name.
pub(crate) struct Reading<T> {
    after: String,
    limit: usize,
    rows: Vec<(String, T)>,
    unreadable: Vec<String>,
}

/// A page: its rows, the names of those among them that cannot be read, and whether more follow.
pub(crate) struct Page<T> {
    pub(crate) rows: Vec<T>,
    pub(crate) unreadable: Vec<String>,
    pub(crate) more: bool,
}

impl<T> Reading<T> {
    pub(crate) fn new(after: Option<String>, limit: usize) -> Self {
        Self { after: after.unwrap_or_default(), limit, rows: Vec::new(), unreadable: Vec::new() }
    }

    /// The name after which the next look begins, and how many rows it asks for.
    pub(crate) fn next(&self) -> (&str, usize) {
        (&self.after, self.limit - self.rows.len())
    }

    /// Takes what a look found, by name; returns whether there may be more to look for.
    pub(crate) fn take(&mut self, found: Vec<(String, Option<T>)>) -> bool {
        let is_last = found.len() < self.next().1;
        for (name, row) in found {
            self.after.clone_from(&name);
            match row {
                Some(row) => self.rows.push((name, row)),
                None => self.unreadable.push(name),
            }
        }
        !is_last && self.next().1 > 0
    }

    /// Lets the next look begin after this name, even if no row of that name was found.
    #[cfg(feature = "redis")]
    pub(crate) fn skip_to(&mut self, name: String) {
        self.after = name;
    }

    pub(crate) fn rows(self) -> Vec<T> {
        self.rows.into_iter().map(|(_, row)| row).collect()
    }

    /// The page, when the limit was one row more than a page holds: that row only tells whether more follow.
    pub(crate) fn page(mut self) -> Page<T> {
        let more = self.next().1 == 0;
        if more {
            self.rows.pop();
            let last = self.rows.last().map(|(name, _)| name.as_str());
            // Those behind it come with the next page.
            self.unreadable.retain(|name| Some(name.as_str()) < last);
        }
        let unreadable = std::mem::take(&mut self.unreadable);
        Page { rows: self.rows(), unreadable, more }
    }
}
