//! The three ways to read: pread(2) in the calling thread, a pool of threads, and nowait.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use blocking::unblock;
use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, TryStreamExt};
use nowait::engine::Engine;

use super::turn::{Figures, Turn};
use super::way::{BLOCK, Way};
use crate::problem::Problem;

/// A way to read a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    Pread,
    Threads,
    Nowait,
}

impl Contender {
    /// In the order of the table.
    pub const ALL: [Contender; 3] = [Contender::Pread, Contender::Threads, Contender::Nowait];

    /// The name in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Pread => "pread",
            Contender::Threads => "threads",
            Contender::Nowait => "nowait",
        }
    }

    /// The number of reads at a time.
    pub fn in_flight(self, way: Way) -> usize {
        match self {
            Contender::Pread => 1,
            Contender::Threads | Contender::Nowait => way.in_flight(),
        }
    }

    /// Reads until the turn is over.
    pub fn run(self, turn: Turn<'_>) -> Result<Figures, Problem> {
        let file = turn.file;
        match self {
            Contender::Pread => pread(turn),
            Contender::Threads => {
                let file = file.file();
                futures(turn, |mut buffer, offset| {
                    let file = file.clone();
                    unblock(move || (file.read_at(&mut buffer, offset), buffer))
                })
            }
            Contender::Nowait => {
                let file = file.open(&Engine::new()?)?;
                futures(turn, |buffer, offset| {
                    let read = file.read_at(buffer, offset);
                    read.map(|read| (read.result.map_err(io::Error::from), read.buf))
                })
            }
        }
    }
}

fn failed(error: impl Into<io::Error>) -> Problem {
    Problem::of("read", error.into())
}

/// One read after the other, in the calling thread.
fn pread(mut turn: Turn<'_>) -> Result<Figures, Problem> {
    let mut buffer = vec![0; BLOCK as usize];
    turn.begin();
    while let Some((offset, begun)) = turn.next() {
        let read = rustix::io::pread(turn.file.file(), &mut buffer, offset).map_err(failed)?;
        turn.done(read, begun, None)?;
    }
    Ok(turn.end())
}

/// Tasks that read one block after the other, all polled by the calling thread.
fn futures<F>(mut turn: Turn<'_>, read: impl Fn(Vec<u8>, u64) -> F) -> Result<Figures, Problem>
where
    F: Future<Output = (io::Result<usize>, Vec<u8>)> + Unpin,
{
    let tasks = turn.way.in_flight();
    turn.begin();
    let turn = RefCell::new(turn);
    pollster::block_on(async {
        // A set of one task would take its own time for each read.
        if tasks == 1 {
            return task(&turn, &read).await;
        }
        let tasks: FuturesUnordered<_> = (0..tasks).map(|_| task(&turn, &read)).collect();
        tasks.try_collect().await
    })?;
    Ok(turn.into_inner().end())
}

/// Reads one block after the other.
async fn task<F>(turn: &RefCell<Turn<'_>>, read: impl Fn(Vec<u8>, u64) -> F) -> Result<(), Problem>
where
    F: Future<Output = (io::Result<usize>, Vec<u8>)> + Unpin,
{
    let mut buffer = vec![0; BLOCK as usize];
    loop {
        let next = turn.borrow_mut().next();
        let Some((offset, begun)) = next else {
            return Ok(());
        };
        let mut polled = Polled {
            future: read(buffer, offset),
            timed: begun.is_some(),
            longest: Duration::ZERO,
        };
        let (result, returned) = (&mut polled).await;
        buffer = returned;
        let read = result.map_err(failed)?;
        turn.borrow_mut().done(read, begun, Some(polled.longest))?;
    }
}

/// A future, and the time of its longest poll if it is timed.
struct Polled<F> {
    future: F,
    timed: bool,
    longest: Duration,
}

impl<F: Future + Unpin> Future for Polled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let begun = self.timed.then(Instant::now);
        let polled = Pin::new(&mut self.future).poll(cx);
        if let Some(begun) = begun {
            self.longest = begun.elapsed().max(self.longest);
        }
        polled
    }
}
