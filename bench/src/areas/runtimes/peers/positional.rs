//! One task's file and buffer, for peers whose positional calls own the buffer until they are done.

use std::io;

use crate::areas::runtimes::gate::Source;
use crate::areas::runtimes::turn::Turn;

/// A file with positional calls. Each returns the buffer.
pub trait Positional {
    /// Fills the buffer, or writes all of it.
    async fn act(&self, buffer: Vec<u8>, write: bool, offset: u64) -> (io::Result<()>, Vec<u8>);
}

/// One task's file and buffer.
pub struct Blocks<F> {
    file: F,
    buffer: Vec<u8>,
    write: bool,
}

impl<F> Blocks<F> {
    pub fn new(turn: &Turn, file: F) -> Blocks<F> {
        Blocks {
            file,
            buffer: vec![1; turn.block()],
            write: turn.is_write(),
        }
    }
}

impl<F: Positional> Source for Blocks<F> {
    async fn act(&mut self, offset: u64) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let (done, buffer) = self.file.act(buffer, self.write, offset).await;
        self.buffer = buffer;
        done
    }
}
