//! The store's statements, in the schema that it lives in.
//!
//! Owns: the schema's name in each statement. Never takes a value into a statement; values are
//! bound.

use std::borrow::Cow;

use super::options::SCHEMA_DEFAULT;

/// Writes statements for one schema.
#[derive(Clone, Debug)]
pub(super) struct Sql {
    /// What `onward.` becomes; nothing when it stays.
    prefix: Option<String>,
}

impl Sql {
    /// For a schema whose name was checked.
    pub(super) fn of(schema: &str) -> Self {
        let other = schema != SCHEMA_DEFAULT;
        Self { prefix: other.then(|| format!("{schema}.")) }
    }

    /// A statement as this schema has it.
    pub(super) fn text(&self, sql: &'static str) -> Cow<'static, str> {
        match &self.prefix {
            None => Cow::Borrowed(sql),
            Some(prefix) => Cow::Owned(sql.replace("onward.", prefix)),
        }
    }

    /// A statement that was put together, as this schema has it.
    pub(super) fn written(&self, sql: &str) -> String {
        match &self.prefix {
            None => sql.to_owned(),
            Some(prefix) => sql.replace("onward.", prefix),
        }
    }

    /// The schema's name.
    pub(super) fn schema(&self) -> &str {
        self.prefix.as_deref().map_or(SCHEMA_DEFAULT, |prefix| prefix.trim_end_matches('.'))
    }

    /// The channel on which the stores of this schema tell each other what changed.
    pub(super) fn channel(&self) -> String {
        format!("onward_{}", self.schema())
    }
}
