//! Standard output, written piece by piece. The reader may close it early.

use std::io::{self, BufWriter, Write};

use crate::problem::Problem;
use crate::terminal::Terminal;

/// Standard output: line-buffered on a terminal, otherwise written in pieces of 64 KiB.
pub struct Output(Box<dyn Write>);

impl Output {
    /// Standard output, buffered as `terminal` requires.
    pub fn new(terminal: Terminal) -> Output {
        Output(match terminal.watched {
            true => Box::new(io::stdout()),
            false => Box::new(BufWriter::with_capacity(64 << 10, io::stdout())),
        })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl From<io::Error> for Problem {
    /// An error of [`Output`].
    fn from(error: io::Error) -> Problem {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Problem::Closed,
            _ => Problem::of("cannot write to standard output", error),
        }
    }
}
