//! The configuration of a part that has kinds: one of this crate, or an external one.

use std::ops::Deref;

/// The configuration of a kind. `K` is its trait, as `dyn SourceKind`.
pub(crate) enum Kind<'a, K: ?Sized> {
    /// A kind of this crate.
    Own(&'a K),
    /// One that another crate has registered.
    External(Box<K>),
}

impl<K: ?Sized> Deref for Kind<'_, K> {
    type Target = K;

    fn deref(&self) -> &K {
        match self {
            Kind::Own(kind) => kind,
            Kind::External(kind) => kind,
        }
    }
}
