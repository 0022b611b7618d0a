//! nowait::tokio::File: positional calls on one file for all tasks, or the stream, with a file for
//! each.

use std::io;
use std::sync::Arc;

use nowait::Mode;
use nowait::engine::{Backend, Engine};
use nowait::tokio::{File, OpenOptions};

use super::on_tokio;
use super::positional::{Blocks, Positional};
use super::stream::Stream;
use crate::areas::runtimes::gate::Gate;
use crate::areas::runtimes::peer::Peer;
use crate::areas::runtimes::turn::Turn;

pub fn positional(gate: &'static Gate) -> io::Result<()> {
    let turn = &gate.turn;
    let file = Arc::new(pollster::block_on(open(turn, &engine(turn)?))?);
    on_tokio::run(gate, |task| {
        Ok(gate.drive(task, Blocks::new(turn, file.clone())))
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

/// The engine of the process, or an engine with the options of the peer.
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

impl Positional for Arc<File> {
    async fn act(&self, buffer: Vec<u8>, write: bool, offset: u64) -> (io::Result<()>, Vec<u8>) {
        let done = match write {
            true => self.write_all_at(buffer, offset).await,
            false => self.read_exact_at(buffer, offset).await,
        };
        (done.result.map(drop).map_err(io::Error::from), done.buf)
    }
}
