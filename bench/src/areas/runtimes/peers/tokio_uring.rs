//! tokio-uring: a runtime with a ring on each thread. The tasks are distributed over the threads.

use std::io;
use std::rc::Rc;

use tokio_uring::fs::File;

use super::on_threads;
use super::positional::{Blocks, Positional};
use crate::areas::runtimes::gate::Gate;
use crate::harness::tick;

pub fn work(gate: &'static Gate) -> io::Result<()> {
    on_threads::run(gate.turn.threads(), move |thread| {
        tokio_uring::start(runtime(gate, thread))
    })
}

async fn runtime(gate: &'static Gate, thread: u64) -> io::Result<()> {
    let file = Rc::new(File::from_std(gate.turn.open()?));
    tokio_uring::spawn(tick::on_tokio(gate.tick()?));
    let spawn = |task| tokio_uring::spawn(gate.drive(task, Blocks::new(&gate.turn, file.clone())));
    let tasks: Vec<_> = gate.tasks_of(thread).map(spawn).collect();
    for task in tasks {
        task.await.map_err(io::Error::other)??;
    }
    Ok(())
}

impl Positional for Rc<File> {
    async fn act(&self, buffer: Vec<u8>, write: bool, offset: u64) -> (io::Result<()>, Vec<u8>) {
        match write {
            true => self.write_all_at(buffer, offset).await,
            false => self.read_exact_at(buffer, offset).await,
        }
    }
}
