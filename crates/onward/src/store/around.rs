//! What stores around another store share.
//!
//! Owns: the accessors of such a store for the verbs that not every store has. It has those that the
//! inner one has, and is itself what answers to them. Never a verb.

/// The named accessors, for a store whose field `inner` is the store that it is around.
macro_rules! as_inner {
    ($($accessor:ident: $verbs:ident),* $(,)?) => {
        $(
            fn $accessor(&self) -> Option<&dyn $verbs> {
                self.inner.$accessor()?;
                Some(self)
            }
        )*
    };
}

pub(crate) use as_inner;
