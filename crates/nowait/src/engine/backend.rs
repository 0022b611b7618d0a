//! The backends, and the choice between them.

use crate::error::{Error, ErrorKind, Result};

/// The mechanism that carries out an engine's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// An io_uring ring, and workers for operations that it does not support.
    Uring,
    /// Worker threads alone.
    Threads,
}

impl Backend {
    /// The name of the backend, as in `NOWAIT_BACKEND`: `uring` or `threads`.
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

/// Chooses a backend. `backend` is the backend that the program requires. `kind_of_ring` names a
/// ring option that the program requires. `try_ring` makes the ring, unless threads are required.
/// If it fails, threads are used, unless a ring is required.
pub(super) fn choose<R>(
    backend: Option<Backend>,
    kind_of_ring: Option<&'static str>,
    try_ring: impl FnOnce() -> std::io::Result<R>,
) -> Result<(Option<R>, Choice)> {
    let required = required(backend)?;
    let (ring, why): (Option<R>, String) = if let Some((Backend::Threads, by)) = required {
        if let Some(what) = kind_of_ring {
            return Err(Error::new(what, ErrorKind::NeedsRing));
        }
        (None, by.into())
    } else {
        match (try_ring(), kind_of_ring, required) {
            (Ok(ring), _, Some((_, by))) => (Some(ring), by.into()),
            (Ok(ring), _, None) => (Some(ring), "kernel and sandbox allow io_uring".into()),
            (Err(e), Some(what), _) => {
                return Err(Error::io(what, &e).because(ErrorKind::NeedsRing));
            }
            (Err(e), None, Some(_)) => return Err(Error::io("io_uring_setup", &e)),
            (Err(e), None, None) => (None, format!("io_uring is not available: {e}")),
        }
    };
    let backend = match ring {
        Some(_) => Backend::Uring,
        None => Backend::Threads,
    };
    Ok((ring, Choice { backend, why }))
}

/// The backend that is required by the environment or the program, with the reason.
fn required(backend: Option<Backend>) -> Result<Option<(Backend, &'static str)>> {
    match std::env::var_os("NOWAIT_BACKEND") {
        Some(name) if name == "uring" => Ok(Some((Backend::Uring, "NOWAIT_BACKEND=uring"))),
        Some(name) if name == "threads" => Ok(Some((Backend::Threads, "NOWAIT_BACKEND=threads"))),
        Some(name) if !name.is_empty() => Err(Error::new(
            "NOWAIT_BACKEND (uring or threads)",
            ErrorKind::InvalidInput,
        )),
        _ => Ok(backend.map(|b| (b, "requested by the program"))),
    }
}
