//! tokio::fs::File: a file for each task, for each has one position; seek, then read or write.

use std::io::{self, SeekFrom};

use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use super::on_tokio;
use crate::gate::{Gate, Source};

struct Stream {
    file: File,
    buffer: Vec<u8>,
    write: bool,
    flush: bool,
    position: u64,
}

pub fn work(gate: &'static Gate) -> io::Result<()> {
    let turn = &gate.turn;
    on_tokio::run(gate, |task| {
        let source = Stream {
            file: File::from_std(turn.open()?),
            buffer: vec![1; turn.block()],
            write: turn.is_write(),
            flush: turn.waits_for_writes(),
            position: 0,
        };
        Ok(gate.drive(task, source))
    })
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
