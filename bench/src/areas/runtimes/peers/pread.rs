//! Threads that block: pread(2) and pwrite(2), or write(2) at the file's position. No runtime, so no
//! tick either.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::areas::runtimes::gate::{Gate, Source};

struct Pread {
    file: Arc<File>,
    buffer: Vec<u8>,
    write: bool,
    /// Where the file's position is, if it is used.
    position: Option<u64>,
}

pub fn work(gate: &'static Gate) -> io::Result<()> {
    let turn = &gate.turn;
    let file = Arc::new(turn.open()?);
    let position = (turn.is_write() && !turn.waits_for_writes()).then_some(0);
    let threads: Vec<_> = (0..gate.tasks())
        .map(|task| {
            let source = Pread {
                file: file.clone(),
                buffer: vec![1; turn.block()],
                write: turn.is_write(),
                position,
            };
            std::thread::spawn(move || pollster::block_on(gate.drive(task, source)))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("panicked"))??;
    }
    Ok(())
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
