//! compio: a runtime with a ring on each thread. The tasks are distributed over the threads.

use std::io;

use compio::BufResult;
use compio::fs::{File, OpenOptions};
use compio::io::{AsyncReadAtExt, AsyncWriteAtExt};
use compio::runtime::Runtime;
use compio::runtime::fd::PollFd;

use super::on_threads;
use super::positional::{Blocks, Positional};
use crate::areas::runtimes::gate::Gate;
use crate::harness::tick::Tick;

pub fn work(gate: &'static Gate) -> io::Result<()> {
    on_threads::run(gate.turn.threads(), move |thread| {
        Runtime::new()?.block_on(runtime(gate, thread))
    })
}

async fn runtime(gate: &'static Gate, thread: u64) -> io::Result<()> {
    let turn = &gate.turn;
    let mut options = OpenOptions::new();
    options.read(!turn.is_write()).write(turn.is_write());
    let file = options.open(&turn.file).await?;
    turn.advise(&file)?;
    compio::runtime::spawn(ticks(gate.tick()?)).detach();
    let spawn = |task| compio::runtime::spawn(gate.drive(task, Blocks::new(turn, file.clone())));
    let tasks: Vec<_> = gate.tasks_of(thread).map(spawn).collect();
    for task in tasks {
        task.await.map_err(|_| io::Error::other("panicked"))??;
    }
    Ok(())
}

/// Serves the timer until the runtime ends.
async fn ticks(tick: &'static Tick) -> io::Result<()> {
    let timer = PollFd::new(tick)?;
    loop {
        timer.read_ready().await?;
        // A timer that has not fired is waited for again.
        let _ = tick.serve();
    }
}

impl Positional for File {
    async fn act(&self, buffer: Vec<u8>, write: bool, offset: u64) -> (io::Result<()>, Vec<u8>) {
        let mut file = self;
        let BufResult(done, buffer) = match write {
            true => file.write_all_at(buffer, offset).await,
            false => file.read_exact_at(buffer, offset).await,
        };
        (done, buffer)
    }
}
