//! nowait::tokio::File: positional calls on one file for all tasks, or the stream, on a file for each.

use std::io::{self, SeekFrom};
use std::sync::Arc;

use nowait::Mode;
use nowait::engine::{Backend, Engine};
use nowait::tokio::{File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use super::on_tokio;
use crate::gate::{Gate, Source};
use crate::peer::Peer;
use crate::turn::Turn;

struct Positional {
    file: Arc<File>,
    buffer: Vec<u8>,
    write: bool,
}

struct Stream {
    file: File,
    buffer: Vec<u8>,
    write: bool,
    flush: bool,
    position: u64,
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
        let source = Stream {
            file: pollster::block_on(open(turn, &engine))?,
            buffer: vec![1; turn.block()],
            write: turn.is_write(),
            flush: turn.waits_for_writes(),
            position: 0,
        };
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
        self.buffer = done.held;
        done.result?;
        Ok(())
    }
}

impl Source for Stream {
    async fn act(&mut self, offset: u64) -> io::Result<()> {
        if self.position != offset {
            self.file.seek(SeekFrom::Start(offset)).await?;
        }
        self.position = offset + self.buffer.len() as u64;
        if !self.write {
            self.file.read_exact(&mut self.buffer).await?;
            return Ok(());
        }
        self.file.write_all(&self.buffer).await?;
        match self.flush {
            true => self.file.flush().await,
            false => Ok(()),
        }
    }

    async fn finish(&mut self) -> io::Result<()> {
        self.file.flush().await
    }
}
