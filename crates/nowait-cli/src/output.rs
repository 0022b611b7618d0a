//! Standard output, written piece by piece. The reader may close it early.

use std::io::{self, BufWriter, Write};

use crate::problem::Problem;
use crate::terminal::Terminal;

/// Standard output: line-buffered on a terminal, otherwise written in pieces of 64 KiB.
pub struct Output(Box<dyn Write>);

/// Standard output that is written as a whole at the end: the next picture of a display that is
/// redrawn.
struct Redrawn(Vec<u8>);

impl Write for Redrawn {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    /// Writes the picture over the last one: from the top, each line and the rest of the screen
    /// cleared.
    fn flush(&mut self) -> io::Result<()> {
        let mut picture = b"\x1b[H".to_vec();
        for &byte in &self.0 {
            if byte == b'\n' {
                picture.extend_from_slice(b"\x1b[K");
            }
            picture.push(byte);
        }
        picture.extend_from_slice(b"\x1b[J");
        self.0.clear();
        let mut out = io::stdout();
        out.write_all(&picture)?;
        out.flush()
    }
}

impl Output {
    /// Standard output, buffered as `terminal` requires.
    pub fn new(terminal: Terminal) -> Output {
        Output(match terminal.watched {
            true => Box::new(io::stdout()),
            false => Box::new(BufWriter::with_capacity(64 << 10, io::stdout())),
        })
    }

    /// Standard output on a terminal, where each flush replaces what was shown before.
    pub fn redrawn() -> Output {
        Output(Box::new(Redrawn(Vec::new())))
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
