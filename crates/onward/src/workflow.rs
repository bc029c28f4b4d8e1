//! The definition of a workflow: a name and two types, shared by clients and workers.
//!
//! Owns: [`Workflow`]. Never the function; a worker is given that.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// A workflow's name, with the types of its input and output.
///
/// ```
/// use onward::Workflow;
///
/// const GREET: Workflow<String, String> = Workflow::named("greet");
/// assert_eq!(GREET.name(), "greet");
/// ```
pub struct Workflow<I, O> {
    name: Cow<'static, str>,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Workflow<I, O> {
    /// The workflow of this name.
    pub const fn named(name: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), types: PhantomData }
    }

    /// The workflow of a name that is only known when the program runs.
    pub fn of_name(name: impl Into<String>) -> Self {
        Self { name: Cow::Owned(name.into()), types: PhantomData }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<I, O> Clone for Workflow<I, O> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), types: PhantomData }
    }
}

impl<I, O> fmt::Debug for Workflow<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workflow").field(&self.name).finish()
    }
}
