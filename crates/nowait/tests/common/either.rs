//! A shared or a local engine.

/// A shared engine or a local one.
pub enum Either<S, L> {
    Shared(S),
    Local(L),
}

/// Calls the same method of a shared or of a local engine: the engine's own, not a trait's.
macro_rules! on_either {
    ($either:expr, $method:ident($($argument:expr),*)) => {
        match $either {
            $crate::common::either::Either::Shared(engine) => {
                nowait::engine::Engine::$method(engine, $($argument),*)
            }
            $crate::common::either::Either::Local(engine) => {
                nowait::engine::LocalEngine::$method(engine, $($argument),*)
            }
        }
    };
}
pub(crate) use on_either;
