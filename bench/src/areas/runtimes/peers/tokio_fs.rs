//! tokio::fs::File: seek, then read or write. Each task has its own file, because a file has one
//! position.

use std::io;

use tokio::fs::File;

use super::on_tokio;
use super::stream::Stream;
use crate::areas::runtimes::gate::Gate;

pub fn work(gate: &'static Gate) -> io::Result<()> {
    let turn = &gate.turn;
    on_tokio::run(gate, |task| {
        let source = Stream::new(turn, File::from_std(turn.open()?));
        Ok(gate.drive(task, source))
    })
}
