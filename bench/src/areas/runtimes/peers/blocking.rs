//! std's positional calls in tokio's spawn_blocking, one open file for all tasks. The buffer goes
//! there and comes back.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::on_tokio;
use crate::areas::runtimes::gate::{Gate, Source};

struct Blocking {
    file: Arc<File>,
    buffer: Vec<u8>,
    write: bool,
}

pub fn work(gate: &'static Gate) -> io::Result<()> {
    let turn = &gate.turn;
    let file = Arc::new(turn.open()?);
    on_tokio::run(gate, |task| {
        let source = Blocking {
            file: file.clone(),
            buffer: vec![1; turn.block()],
            write: turn.is_write(),
        };
        Ok(gate.drive(task, source))
    })
}

impl Source for Blocking {
    async fn act(&mut self, offset: u64) -> io::Result<()> {
        let (file, write) = (self.file.clone(), self.write);
        let mut buffer = std::mem::take(&mut self.buffer);
        let call = move || {
            let done = match write {
                true => file.write_all_at(&buffer, offset),
                false => file.read_exact_at(&mut buffer, offset),
            };
            (done, buffer)
        };
        let (done, buffer) = tokio::task::spawn_blocking(call).await?;
        self.buffer = buffer;
        done
    }
}
