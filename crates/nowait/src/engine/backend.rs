//! The backends, and the choice between them.

use crate::error::{Error, ErrorKind, Result};

/// Which mechanism carries an engine's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// An io_uring ring, and workers for what it can't do.
    Uring,
    /// Worker threads alone.
    Threads,
}

impl Backend {
    /// Its name as `NOWAIT_BACKEND` takes it: `uring` or `threads`.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Uring => "uring",
            Backend::Threads => "threads",
        }
    }
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The backend in use and the reason for it.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) backend: Backend,
    pub(super) why: String,
}

/// Chooses a backend: tries to make what only a ring needs (`try_ring`) unless threads are
/// insisted on, and falls back unless the ring is. `backend` is the one that the program asks for,
/// `kind_of_ring` a kind of ring that it can't do without.
pub(super) fn choose<R>(
    backend: Option<Backend>,
    kind_of_ring: Option<&'static str>,
    try_ring: impl FnOnce() -> std::io::Result<R>,
) -> Result<(Option<R>, Choice)> {
    let insisted = insisted(backend)?;
    if let Some((Backend::Threads, by)) = insisted {
        if let Some(what) = kind_of_ring {
            return Err(Error::new(what, ErrorKind::NeedsRing));
        }
        return Ok((
            None,
            Choice {
                backend: Backend::Threads,
                why: by.into(),
            },
        ));
    }
    let ring = try_ring();
    if let (Err(e), Some(what)) = (&ring, kind_of_ring) {
        return Err(Error::io(what, e).because(ErrorKind::NeedsRing));
    }
    match (ring, insisted) {
        (Ok(ring), by) => {
            let why = by
                .map_or("this kernel and sandbox allow io_uring", |(_, by)| by)
                .into();
            Ok((
                Some(ring),
                Choice {
                    backend: Backend::Uring,
                    why,
                },
            ))
        }
        (Err(e), Some(_)) => Err(Error::io("io_uring_setup", &e)),
        (Err(e), None) => {
            let why = format!("io_uring is not to be had here: {e}");
            Ok((
                None,
                Choice {
                    backend: Backend::Threads,
                    why,
                },
            ))
        }
    }
}

/// Which backend is insisted on, and by whom.
fn insisted(backend: Option<Backend>) -> Result<Option<(Backend, &'static str)>> {
    match std::env::var_os("NOWAIT_BACKEND") {
        Some(name) if name == "uring" => Ok(Some((Backend::Uring, "NOWAIT_BACKEND=uring"))),
        Some(name) if name == "threads" => Ok(Some((Backend::Threads, "NOWAIT_BACKEND=threads"))),
        Some(name) if !name.is_empty() => Err(Error::new(
            "NOWAIT_BACKEND (uring or threads)",
            ErrorKind::InvalidInput,
        )),
        _ => Ok(backend.map(|b| (b, "asked for by the program"))),
    }
}

/// Why an engine without a ring has no registered files.
pub(super) fn no_ring() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::Unsupported, "the engine has no ring")
}
