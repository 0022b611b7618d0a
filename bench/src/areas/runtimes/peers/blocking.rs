//! std's positional calls in tokio's spawn_blocking, one open file for all tasks. The buffer goes
//! to the blocking thread and comes back.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::on_tokio;
use super::positional::{Blocks, Positional};
use crate::areas::runtimes::gate::Gate;

pub fn work(gate: &'static Gate) -> io::Result<()> {
    let turn = &gate.turn;
    let file = Arc::new(turn.open()?);
    on_tokio::run(gate, |task| {
        Ok(gate.drive(task, Blocks::new(turn, file.clone())))
    })
}

impl Positional for Arc<File> {
    async fn act(
        &self,
        mut buffer: Vec<u8>,
        write: bool,
        offset: u64,
    ) -> (io::Result<()>, Vec<u8>) {
        let file = self.clone();
        let call = move || match write {
            true => (file.write_all_at(&buffer, offset), buffer),
            false => (file.read_exact_at(&mut buffer, offset), buffer),
        };
        let joined = tokio::task::spawn_blocking(call).await;
        joined.unwrap_or_else(|e| (Err(e.into()), Vec::new()))
    }
}
