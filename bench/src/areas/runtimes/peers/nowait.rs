//! nowait::tokio::File: positional calls on one file for all tasks, or the stream, on a file for each.

use std::io;
use std::sync::Arc;

use nowait::Mode;
use nowait::engine::{Backend, Engine};
use nowait::tokio::{File, OpenOptions};

use super::on_tokio;
use super::stream::Stream;
use crate::areas::runtimes::gate::{Gate, Source};
use crate::areas::runtimes::peer::Peer;
use crate::areas::runtimes::turn::Turn;

struct Positional {
    file: Arc<File>,
    buffer: Vec<u8>,
    write: bool,
}

pub fn positional(gate: &'static Gate) -> io::Result<()> {
    let turn = &gate.turn;
    let file = Arc::new(pollster::block_on(open(turn, &engine(turn)?))?);
    on_tokio::run(gate, |task| {
        let source = Positional {
            file: file.clone(),
            buffer: vec![1; turn.block()],
            write: turn.is_write(),
        };
        Ok(gate.drive(task, source))
    })
}

pub fn stream(gate: &'static Gate) -> io::Result<()> {
    let turn = &gate.turn;
    let engine = engine(turn)?;
    on_tokio::run(gate, |task| {
        let source = Stream::new(turn, pollster::block_on(open(turn, &engine))?);
        Ok(gate.drive(task, source))
    })
}

/// The process's own, as a program gets it, unless the peer is another one.
fn engine(turn: &Turn) -> nowait::Result<Engine> {
    match turn.peer {
        Peer::NowaitStrict => Engine::options().mode(Mode::Strict).build(),
        Peer::NowaitThreads => Engine::options().backend(Backend::Threads).build(),
        _ => Engine::process(),
    }
}

async fn open(turn: &Turn, engine: &Engine) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(!turn.is_write()).write(turn.is_write());
    let file = options.engine(engine).open(&turn.file).await?;
    turn.advise(&file)?;
    Ok(file)
}

impl Source for Positional {
    async fn act(&mut self, offset: u64) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let done = match self.write {
            true => self.file.write_all_at(buffer, offset).await,
            false => self.file.read_exact_at(buffer, offset).await,
        };
        self.buffer = done.buf;
        done.result?;
        Ok(())
    }
}
