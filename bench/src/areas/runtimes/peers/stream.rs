//! A file with a position, as in tokio: seek, then read or write. nowait's file and tokio's file
//! share this code.

use std::io::{self, SeekFrom};

use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt, AsyncWrite, AsyncWriteExt};

use super::on_tokio;
use crate::areas::runtimes::gate::{Gate, Source};
use crate::areas::runtimes::turn::Turn;

/// tokio::fs::File. Each task has its own file, because a file has one position.
pub fn tokio_fs(gate: &'static Gate) -> io::Result<()> {
    let turn = &gate.turn;
    on_tokio::run(gate, |task| {
        let source = Stream::new(turn, File::from_std(turn.open()?));
        Ok(gate.drive(task, source))
    })
}

pub struct Stream<F> {
    file: F,
    buffer: Vec<u8>,
    write: bool,
    flush: bool,
    position: u64,
}

impl<F> Stream<F> {
    pub fn new(turn: &Turn, file: F) -> Stream<F> {
        Stream {
            file,
            buffer: vec![1; turn.block()],
            write: turn.is_write(),
            flush: turn.waits_for_writes(),
            position: 0,
        }
    }
}

impl<F: AsyncRead + AsyncSeek + AsyncWrite + Unpin> Source for Stream<F> {
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
