//! A shared or a local engine.

/// A shared engine or a local one.
pub enum Either<S, L> {
    Shared(S),
    Local(L),
}

/// Calls the same method of a shared or of a local engine.
macro_rules! on_either {
    ($either:expr, $engine:ident => $call:expr) => {
        match $either {
            $crate::common::either::Either::Shared($engine) => $call,
            $crate::common::either::Either::Local($engine) => $call,
        }
    };
}
pub(crate) use on_either;
