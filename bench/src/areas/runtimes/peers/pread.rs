//! Threads that block in pread(2) and pwrite(2), or in write(2) at the file's position. There is no
//! runtime, so there is no tick.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::on_threads;
use crate::areas::runtimes::gate::{Gate, Source};

struct Pread {
    file: Arc<File>,
    buffer: Vec<u8>,
    write: bool,
    /// The file's position, if it is used.
    position: Option<u64>,
}

pub fn work(gate: &'static Gate) -> io::Result<()> {
    let turn = &gate.turn;
    let file = Arc::new(turn.open()?);
    let position = (turn.is_write() && !turn.waits_for_writes()).then_some(0);
    on_threads::run(gate.tasks(), move |task| {
        let source = Pread {
            file: file.clone(),
            buffer: vec![1; turn.block()],
            write: turn.is_write(),
            position,
        };
        pollster::block_on(gate.drive(task, source))
    })
}

impl Source for Pread {
    async fn act(&mut self, offset: u64) -> io::Result<()> {
        match &mut self.position {
            Some(position) => {
                let mut file = &*self.file;
                if *position != offset {
                    file.seek(SeekFrom::Start(offset))?;
                }
                *position = offset + self.buffer.len() as u64;
                file.write_all(&self.buffer)
            }
            None if self.write => self.file.write_all_at(&self.buffer, offset),
            None => self.file.read_exact_at(&mut self.buffer, offset),
        }
    }
}
