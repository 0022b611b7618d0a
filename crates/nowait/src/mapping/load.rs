//! The future that makes a range of a mapping resident.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::frames::Refused;
use super::mapped::{Mapped, failed};
use super::resident::{Held, SendResident};
use crate::engine::Run;
use crate::error::Result;
use crate::file::File;
use crate::op::Call;
use crate::sync::{Mutex, lock};

/// The future of [`Mapping::load`](crate::Mapping::load). A worker of the file's engine reads the windows.
///
/// # Errors
/// [`ErrorKind::Unprotected`](crate::ErrorKind::Unprotected) if the file may change: see [`Mapping::why`](crate::Mapping::why).
/// ENOMEM if the windows do not fit into the budget, because others are borrowed or because no memory may be
/// locked. EINVAL if the range is empty or ends beyond the file. The errors of read(2), and EFAULT if the
/// file was truncated. The errors of [`Engine::run`](crate::Engine::run).
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
    Running(&'a Mapped, Run<'a, Call>, Arc<Reply>),
    Done,
}

/// The result of the worker.
type Reply = Mutex<Option<std::result::Result<Held, Refused>>>;

impl<'a> Load<'a> {
    pub(super) fn new(file: &'a File, mapped: Result<&'a Mapped>, range: Range<u64>) -> Load<'a> {
        Load {
            file,
            range,
            state: State::New(mapped),
        }
    }

    /// Has a worker make the range resident.
    fn run(&self, mapped: &'a Mapped) -> State<'a> {
        let reply = Arc::new(Reply::default());
        let (to, own, range) = (reply.clone(), mapped.clone(), self.range.clone());
        let call = Call::new(move || {
            let result = own.load(&range);
            *lock(&to) = Some(result);
        });
        State::Running(mapped, run(self.file, call), reply)
    }
}

fn run(file: &File, call: Call) -> Run<'_, Call> {
    file.engine().run(call.on(file.handle()))
}

/// Has a worker make a range resident, and does not wait. A full engine drops the call.
pub(super) fn start(file: &File, mapped: Mapped, range: Range<u64>) {
    let call = Call::new(move || mapped.prefetch(&range));
    let mut run = run(file, call);
    let _ = Pin::new(&mut run).poll(&mut Context::from_waker(Waker::noop()));
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
                this.run(mapped)
            }
            running => running,
        };
        let State::Running(mapped, run, reply) = &mut this.state else {
            return Poll::Pending;
        };
        let Poll::Ready(done) = Pin::new(run).poll(cx) else {
            return Poll::Pending;
        };
        let (mapped, result) = (*mapped, lock(reply).take());
        this.state = State::Done;
        let path = this.file.handle().shared_path();
        done.result.map_err(|e| e.named("load").on(path))?;
        // The call ran: it has a result.
        let held = result.unwrap_or(Err(Refused::Closed));
        let held = held.map_err(|refused| failed(this.file, refused))?;
        // Even if the lease was broken since then.
        Poll::Ready(Ok(mapped.loaded(&this.range, held)))
    }
}
