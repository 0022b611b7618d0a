//! compio: a runtime of one thread with a ring of its own, as many of them as there are threads, the
//! tasks dealt out to them.

use std::io;

use compio::BufResult;
use compio::fs::{File, OpenOptions};
use compio::io::{AsyncReadAtExt, AsyncWriteAtExt};
use compio::runtime::Runtime;
use compio::runtime::fd::PollFd;

use crate::areas::runtimes::gate::{Gate, Source};
use crate::areas::runtimes::tick::Tick;

struct Compio {
    file: File,
    buffer: Vec<u8>,
    write: bool,
}

pub fn work(gate: &'static Gate) -> io::Result<()> {
    let threads: Vec<_> = (0..gate.turn.threads())
        .map(|thread| std::thread::spawn(move || Runtime::new()?.block_on(runtime(gate, thread))))
        .collect();
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("panicked"))??;
    }
    Ok(())
}

async fn runtime(gate: &'static Gate, thread: u64) -> io::Result<()> {
    let turn = &gate.turn;
    let mut options = OpenOptions::new();
    options.read(!turn.is_write()).write(turn.is_write());
    let file = options.open(&turn.file).await?;
    turn.advise(&file)?;
    compio::runtime::spawn(ticks(gate.tick()?)).detach();
    let tasks: Vec<_> = (thread..gate.tasks())
        .step_by(turn.threads() as usize)
        .map(|task| {
            let source = Compio {
                file: file.clone(),
                buffer: vec![1; turn.block()],
                write: turn.is_write(),
            };
            compio::runtime::spawn(gate.drive(task, source))
        })
        .collect();
    for task in tasks {
        task.await.map_err(|_| io::Error::other("panicked"))??;
    }
    Ok(())
}

/// Serves the timer for as long as the runtime is there.
async fn ticks(tick: &'static Tick) -> io::Result<()> {
    let timer = PollFd::new(tick)?;
    loop {
        timer.read_ready().await?;
        // Not fired yet: it is waited for again.
        let _ = tick.serve();
    }
}

impl Source for Compio {
    async fn act(&mut self, offset: u64) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let BufResult(done, buffer) = match self.write {
            true => (&self.file).write_all_at(buffer, offset).await,
            false => self.file.read_exact_at(buffer, offset).await,
        };
        self.buffer = buffer;
        done
    }
}
