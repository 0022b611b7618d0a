//! The output: a line for each directory, or a JSON object printed entry by entry.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::name::{Name, Shown};
use crate::output::Output;
use crate::size::Size;
use crate::terminal::Terminal;

/// A report whose beginning is printed.
pub struct Report {
    out: Output,
    json: bool,
    /// True if sizes are rounded, on a terminal.
    rounded: bool,
    lines: u64,
}

/// The totals over all paths.
#[derive(Default, Serialize)]
pub struct Totals {
    pub bytes: u64,
    pub files: u64,
    pub directories: u64,
    /// The number of further names of counted files.
    pub other_names: u64,
}

impl Totals {
    /// Adds a file or directory.
    pub fn count(&mut self, bytes: u64, is_directory: bool) {
        self.bytes += bytes;
        self.directories += u64::from(is_directory);
        self.files += u64::from(!is_directory);
    }
}

#[derive(Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    name: Name<'a>,
    bytes: u64,
}

#[derive(Serialize)]
struct Sum<'a> {
    #[serde(flatten)]
    totals: &'a Totals,
    failed: u64,
}

impl Report {
    /// Prints the beginning.
    pub fn begin(terminal: Terminal, json: bool, apparent: bool) -> io::Result<Report> {
        let mut out = Output::new(terminal);
        if json {
            let version = env!("CARGO_PKG_VERSION");
            write!(
                out,
                "{{\"du\": 1, \"version\": \"{version}\", \"apparent\": {apparent}, \"entries\": ["
            )?;
        }
        Ok(Report {
            out,
            json,
            rounded: terminal.watched,
            lines: 0,
        })
    }

    /// Prints one directory or file.
    pub fn line(&mut self, path: &Path, bytes: u64) -> io::Result<()> {
        self.lines += 1;
        if self.json {
            let comma = if self.lines > 1 { "," } else { "" };
            write!(self.out, "{comma}\n  ")?;
            let name = Name::of(path);
            serde_json::to_writer(&mut self.out, &Entry { name, bytes })?;
            return Ok(());
        }
        let path = Shown(path);
        match self.rounded {
            true => writeln!(self.out, "{}\t{path}", Size(bytes)),
            false => writeln!(self.out, "{bytes}\t{path}"),
        }
    }

    /// Prints the end.
    pub fn end(mut self, totals: &Totals, failed: u64) -> io::Result<()> {
        if self.json {
            write!(self.out, "\n], \"total\": ")?;
            serde_json::to_writer(&mut self.out, &Sum { totals, failed })?;
            writeln!(self.out, "}}")?;
        }
        self.out.flush()
    }
}
