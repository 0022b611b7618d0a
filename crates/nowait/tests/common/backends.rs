//! The engine's backends.

use nowait::engine::{Backend, Options};

/// The backends that can be had here; says so (or fails, see [`slowdisk::skip_or_fail`]) where the
/// ring can't.
pub fn backends() -> Vec<Backend> {
    match Options::new()
        .depth(1)
        .backend(Backend::Uring)
        .build_local()
    {
        Ok(_) => vec![Backend::Uring, Backend::Threads],
        Err(e) => {
            slowdisk::skip_or_fail(format!("no io_uring: {e}"));
            vec![Backend::Threads]
        }
    }
}
