//! The future of a positional read: the caller's part at the first poll, the rest on the engine.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use super::File;
use super::trip::Trip;
use crate::completion::Completion;
use crate::error::{Error, ErrorKind};
use crate::flags::RwFlags;
use crate::op::buffer::{IoBufMut, downcast};
use crate::op::read::start_into;
use crate::op::{Op, Read};
use crate::read::{self, Rest, Start};

/// The future of [`File::read_at`] and [`File::read_exact_at`].
///
/// Polled again after it was ready it stays pending.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct ReadAt<'a, B> {
    file: &'a File,
    state: Reading<B>,
    offset: u64,
    flags: RwFlags,
    deadline: Option<Instant>,
    exact: bool,
    /// The buffer's room, known from the first poll on.
    len: usize,
}

#[derive(Debug)]
enum Reading<B> {
    New(B),
    Away(Trip),
    Over,
}

impl<B> Unpin for ReadAt<'_, B> {}

impl<'a, B: IoBufMut> ReadAt<'a, B> {
    pub(super) fn new(file: &'a File, buffer: B, offset: u64, exact: bool) -> ReadAt<'a, B> {
        ReadAt {
            file,
            state: Reading::New(buffer),
            offset,
            flags: RwFlags::empty(),
            deadline: None,
            exact,
            len: 0,
        }
    }

    /// With these `RWF_*` flags.
    pub fn flags(mut self, flags: RwFlags) -> Self {
        self.flags = flags;
        self
    }

    /// When to give up: see [`Op::deadline`].
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    fn name(&self) -> &'static str {
        if self.exact {
            "read_exact_at"
        } else {
            "read_at"
        }
    }

    /// The last word on a read: an exact one must have filled its buffer.
    fn land(&self, mut done: Completion<B>) -> Poll<Completion<B>> {
        let path = self.file.handle.shared_path();
        done.result = match done.result {
            Ok(n) if self.exact && n < self.len => {
                Err(Error::new("read_exact_at", ErrorKind::UnexpectedEof).on(path))
            }
            Ok(n) => Ok(n),
            Err(error) => Err(error.named(self.name()).on(path)),
        };
        Poll::Ready(done)
    }

    /// Boxes the buffer into an operation for the engine.
    fn rest(&self, buffer: B, rest: Rest) -> Trip {
        let mut read =
            Read::new(&self.file.handle, Box::new(buffer), self.offset).flags(self.flags);
        read.have(rest.done);
        let mut op = Op::from(read);
        if let Some(deadline) = self.deadline {
            op = op.deadline(deadline);
        }
        Trip::new(op, Some(rest))
    }
}

impl<B: IoBufMut> Future for ReadAt<'_, B> {
    type Output = Completion<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Completion<B>> {
        let this = self.get_mut();
        let File { handle, engine } = this.file;
        if let Reading::New(buffer) = &mut this.state {
            let started = start_into(buffer, |space| {
                this.len = space.len();
                let core = engine.core();
                let (offset, flags) = (this.offset, this.flags);
                read::start(core, handle, space, Some(offset), flags, false, || {
                    core.is_idle()
                })
            });
            let Reading::New(buffer) = std::mem::replace(&mut this.state, Reading::Over) else {
                return Poll::Pending;
            };
            if let Some(ahead) =
                read::ahead(engine.core(), handle, (this.offset, this.len), &started)
            {
                engine.read_ahead(ahead);
            }
            match started {
                Start::Done(n, provenance) => {
                    return this.land(Completion {
                        result: Ok(n),
                        held: buffer,
                        provenance,
                        ticket: None,
                    });
                }
                Start::Failed(errno) => {
                    return this.land(Completion::failed(Error::os("read_at", errno), buffer));
                }
                Start::Rest(rest) => match engine.check_process("read_at") {
                    Ok(()) => this.state = Reading::Away(this.rest(buffer, rest)),
                    Err(error) => return this.land(Completion::failed(error, buffer)),
                },
            }
        }
        let Reading::Away(trip) = &mut this.state else {
            return Poll::Pending;
        };
        match trip.poll(engine, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(completion) => {
                this.state = Reading::Over;
                match own_buffer(completion) {
                    Some(done) => this.land(done),
                    None => Poll::Pending,
                }
            }
        }
    }
}

/// The buffer that a read's operation owned, as what it was. It always is of that type.
fn own_buffer<B: IoBufMut>(completion: Completion) -> Option<Completion<B>> {
    let Completion {
        result,
        held,
        provenance,
        ticket,
    } = completion;
    let held = downcast(held.into_buffer()?).ok()?;
    Some(Completion {
        result,
        held,
        provenance,
        ticket,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Backend, Options};

    /// A file whose reads are made by workers where nothing can be tried in the caller: under Miri.
    fn file() -> (File, Vec<u8>) {
        let options = Options::new().backend(Backend::Threads).workers(2);
        let engine = options.build().unwrap();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let file = super::super::OpenOptions::new()
            .read(true)
            .engine(&engine)
            .blocking_open(path)
            .unwrap();
        (file, std::fs::read(path).unwrap())
    }

    #[test]
    fn reads_of_several_threads_bring_the_files_bytes() {
        let (file, bytes) = file();
        let reads = &|at: usize| {
            let read = pollster::block_on(file.read_at(Vec::with_capacity(100), at as u64));
            let n = read.result.unwrap();
            assert_eq!(read.held[..100], bytes[at..at + 100]);
            assert_eq!(n, read.held.len());
            let boxed = pollster::block_on(file.read_at(Box::new([0; 9]), at as u64));
            assert_eq!(boxed.held[..], bytes[at..at + 9]);
        };
        std::thread::scope(|s| {
            for at in [0, 7, 50] {
                s.spawn(move || reads(at));
            }
        });
    }

    #[test]
    fn a_read_may_be_dropped_on_its_way_and_its_file_and_engine_too() {
        let (file, _) = file();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for _ in 0..3 {
            let mut read = file.read_at(vec![0; 100], 0);
            let _ = Pin::new(&mut read).poll(&mut cx);
        }
        drop(file);
    }
}
