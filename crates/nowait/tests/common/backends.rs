//! The engine's backends.

use nowait::engine::{Backend, Options};

/// The backends that work on this machine. If no ring can be made, that is reported as a skipped test (see
/// [`slowdisk::skip_or_fail`]).
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
