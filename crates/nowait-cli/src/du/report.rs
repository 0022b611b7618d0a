//! The output: a line for each directory, or a JSON object printed entry by entry.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;

use super::unit::Unit;
use super::usage::Usage;
use crate::file_time::TimeFormat;
use crate::name::{DisplayPath, Name};
use crate::output::Output;
use crate::terminal::Terminal;

/// The form of the output.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    Json {
        apparent: bool,
    },
    /// Lines that end with a line break, or with a NUL byte.
    Lines {
        unit: Unit,
        /// True if a time is printed on each line.
        times: bool,
        null: bool,
    },
}

/// A report whose beginning is printed.
pub struct Report {
    out: Output,
    form: Form,
    /// True if unusual names are quoted, on a terminal.
    quoted: bool,
    lines: u64,
}

/// The totals over all paths.
#[derive(Default)]
pub struct Totals {
    pub usage: Usage,
    pub files: u64,
    pub directories: u64,
    /// The number of further names of counted files.
    pub other_names: u64,
}

impl Totals {
    /// Adds a file or directory.
    pub fn count(&mut self, usage: Usage, is_directory: bool) {
        self.usage += usage;
        self.directories += u64::from(is_directory);
        self.files += u64::from(!is_directory);
    }
}

#[derive(Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    name: Name<'a>,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<i64>,
}

#[derive(Serialize)]
struct Sum {
    bytes: u64,
    files: u64,
    directories: u64,
    other_names: u64,
    failed: u64,
    interrupted: bool,
}

impl Report {
    /// Prints the beginning.
    pub fn begin(terminal: Terminal, form: Form) -> io::Result<Report> {
        let mut out = Output::new(terminal);
        if let Form::Json { apparent } = form {
            let version = env!("CARGO_PKG_VERSION");
            write!(
                out,
                "{{\"du\": 1, \"version\": \"{version}\", \"apparent\": {apparent}, \"entries\": ["
            )?;
        }
        Ok(Report {
            out,
            form,
            quoted: terminal.watched,
            lines: 0,
        })
    }

    /// Prints one directory or file.
    pub fn line(&mut self, path: &Path, usage: Usage) -> io::Result<()> {
        self.lines += 1;
        match self.form {
            Form::Json { .. } => {
                let comma = if self.lines > 1 { "," } else { "" };
                write!(self.out, "{comma}\n  ")?;
                let entry = Entry {
                    name: Name::of(path),
                    bytes: usage.bytes,
                    time: usage.time.map(|time| time.seconds),
                };
                serde_json::to_writer(&mut self.out, &entry)?;
                Ok(())
            }
            Form::Lines { unit, times, null } => {
                let out = &mut self.out;
                write!(out, "{}\t", unit.print(usage.bytes))?;
                if times {
                    let time = usage.time.map(|time| time.print(TimeFormat::LongIso));
                    write!(out, "{}\t", time.as_deref().unwrap_or("?"))?;
                }
                match self.quoted && !null {
                    true => write!(out, "{}", DisplayPath(path))?,
                    false => out.write_all(path.as_os_str().as_bytes())?,
                }
                out.write_all(if null { b"\0" } else { b"\n" })
            }
        }
    }

    /// Prints the end.
    pub fn end(mut self, totals: &Totals, failed: u64, interrupted: bool) -> io::Result<()> {
        if let Form::Json { .. } = self.form {
            write!(self.out, "\n], \"total\": ")?;
            let sum = Sum {
                bytes: totals.usage.bytes,
                files: totals.files,
                directories: totals.directories,
                other_names: totals.other_names,
                failed,
                interrupted,
            };
            serde_json::to_writer(&mut self.out, &sum)?;
            writeln!(self.out, "}}")?;
        }
        self.out.flush()
    }
}
