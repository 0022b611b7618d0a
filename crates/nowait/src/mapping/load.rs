//! The future that makes a range of a mapping resident.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::frames::Refused;
use super::mapped::{Mapped, failed};
use super::resident::{Held, SendResident};
use crate::engine::SpawnBlocking;
use crate::error::Result;
use crate::file::File;

/// The future of [`Mapping::load`](crate::Mapping::load). A worker of the file's engine reads the
/// windows.
///
/// # Errors
/// [`ErrorKind::Unprotected`](crate::ErrorKind::Unprotected) if the file may change: see
/// [`Mapping::why`](crate::Mapping::why). ENOMEM if the windows do not fit into the budget, because
/// others are borrowed or because no memory may be locked. EINVAL if the range is empty or ends
/// beyond the file. The errors of read(2), and EFAULT if the file was truncated. The errors of
/// [`Engine::spawn_blocking`](crate::Engine::spawn_blocking).
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Load<'a> {
    file: &'a File,
    range: Range<u64>,
    state: State<'a>,
}

#[derive(Debug)]
enum State<'a> {
    New(Result<&'a Mapped>),
    Running(&'a Mapped, SpawnBlocking<LoadResult>),
    Done,
}

type LoadResult = std::result::Result<Held, Refused>;

impl<'a> Load<'a> {
    pub(super) fn new(file: &'a File, mapped: Result<&'a Mapped>, range: Range<u64>) -> Load<'a> {
        Load {
            file,
            range,
            state: State::New(mapped),
        }
    }
}

fn spawn<T: Send + 'static>(
    file: &File,
    call: impl FnOnce() -> T + Send + 'static,
) -> SpawnBlocking<T> {
    file.engine().spawn_blocking_on(Some(file.handle()), call)
}

/// Has a worker make a range resident, and does not wait. A full engine drops the call.
pub(super) fn start(file: &File, mapped: Mapped, range: Range<u64>) {
    drop(spawn(file, move || mapped.prefetch(&range)));
}

impl<'a> Future for Load<'a> {
    type Output = Result<SendResident<'a>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<SendResident<'a>>> {
        let this = self.get_mut();
        this.state = match std::mem::replace(&mut this.state, State::Done) {
            State::New(mapped) => {
                let mapped = mapped?;
                if let Some(resident) = mapped.get_send(this.range.clone()) {
                    return Poll::Ready(Ok(resident));
                }
                let (to_load, range) = (mapped.clone(), this.range.clone());
                let load = spawn(this.file, move || to_load.load(&range));
                State::Running(mapped, load)
            }
            running => running,
        };
        let State::Running(mapped, load) = &mut this.state else {
            return Poll::Pending;
        };
        let loaded = ready!(Pin::new(load).poll(cx));
        let mapped = *mapped;
        this.state = State::Done;
        let path = this.file.handle().shared_path();
        let held = loaded.map_err(|e| e.named("load").on(path))?;
        let held = held.map_err(|refused| failed(this.file, refused))?;
        // Even if the lease was broken since then.
        Poll::Ready(Ok(mapped.loaded(&this.range, held)))
    }
}
