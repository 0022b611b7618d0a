//! What is printed: names in columns, lines, NUL-ended paths, or one JSON object.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::json;
use unicode_width::UnicodeWidthStr;

use super::colour::Colours;
use super::grid::{Grid, blanks};
use super::json::Entry;
use super::long::{Cells, Widths};
use super::owner::Owners;
use super::row::{Row, Xattr};
use crate::messages::Messages;
use crate::name::Shown;
use crate::output::Output;
use crate::problem::Problem;
use crate::terminal::Terminal;

/// How names are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In columns.
    Grid,
    /// One on a line.
    Lines,
    /// The same, with what statx(2) says before it.
    Long,
    /// Whole paths, each ended by a NUL byte.
    Null,
    Json,
}

impl Form {
    /// Whether it shows more than names.
    pub fn shows_metadata(self) -> bool {
        matches!(self, Form::Long | Form::Json)
    }
}

/// A report that has begun.
pub struct Report {
    out: Output,
    form: Form,
    /// Lines say in which directory a name is.
    whole_paths: bool,
    width: usize,
    colours: Option<Colours>,
    owners: Owners,
    widths: Widths,
    entries: u64,
    /// Headings and rows; what comes first has no empty line before it.
    begun: bool,
}

impl Report {
    /// Begins it.
    pub fn begin(form: Form, terminal: Terminal, whole_paths: bool) -> io::Result<Report> {
        let mut out = Output::new(terminal);
        if form == Form::Json {
            let version = env!("CARGO_PKG_VERSION");
            write!(
                out,
                "{{\"ls\": 1, \"version\": \"{version}\", \"entries\": ["
            )?;
        }
        let text = !matches!(form, Form::Null | Form::Json);
        Ok(Report {
            out,
            form,
            whole_paths,
            width: terminal.width,
            colours: (terminal.colour && text).then(Colours::look),
            owners: Owners::new(),
            widths: Widths::default(),
            entries: 0,
            begun: false,
        })
    }

    /// Whether names have colours, some of which follow from the mode.
    pub fn is_coloured(&self) -> bool {
        self.colours.is_some()
    }

    /// How many entries were shown.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The entries of another directory follow.
    pub fn heading(&mut self, directory: &Path) -> io::Result<()> {
        if matches!(self.form, Form::Null | Form::Json) {
            return Ok(());
        }
        if std::mem::replace(&mut self.begun, true) {
            writeln!(self.out)?;
        }
        writeln!(self.out, "{}:", Shown(directory))?;
        self.out.flush()
    }

    /// More entries of one directory.
    pub fn show(&mut self, rows: &[Row<'_>], messages: &Messages) -> Result<(), Problem> {
        self.entries += rows.len() as u64;
        self.begun |= !rows.is_empty();
        let mut said = Vec::new();
        match self.form {
            Form::Grid => self.grid(rows, &mut said),
            Form::Lines => self.lines(rows, &mut said),
            Form::Long => self.long(rows, messages, &mut said),
            Form::Null => {
                for row in rows {
                    said.extend_from_slice(row.path().as_os_str().as_bytes());
                    said.push(0);
                }
            }
            Form::Json => self.json(rows, messages, &mut said)?,
        }
        messages.without_progress(|| self.out.write_all(&said))?;
        Ok(())
    }

    /// The end.
    pub fn end(mut self, failed: u64) -> io::Result<()> {
        if self.form == Form::Json {
            let total = json!({"entries": self.entries, "failed": failed});
            writeln!(self.out, "\n], \"total\": {total}}}")?;
        }
        self.out.flush()
    }

    fn grid(&self, rows: &[Row<'_>], said: &mut Vec<u8>) {
        let names: Vec<_> = rows.iter().map(|row| self.name(row)).collect();
        let cells: Vec<_> = names.iter().map(|name| name.width()).collect();
        let grid = Grid::of(&cells, self.width);
        for line in 0..grid.rows {
            for (at, behind) in grid.line(line, &cells) {
                self.coloured(&rows[at], &names[at], said);
                blanks(behind).for_each(|blank| said.extend_from_slice(blank));
            }
            said.push(b'\n');
        }
    }

    fn lines(&self, rows: &[Row<'_>], said: &mut Vec<u8>) {
        for row in rows {
            self.coloured(row, &self.name(row), said);
            said.push(b'\n');
            attributes(row, said);
        }
    }

    fn long(&mut self, rows: &[Row<'_>], messages: &Messages, said: &mut Vec<u8>) {
        let cells = rows
            .iter()
            .map(|row| Cells::of(row.kind, row.stat, &mut self.owners));
        let cells: Vec<_> = cells.collect();
        cells.iter().for_each(|cells| self.widths.take_in(cells));
        let mut line = String::new();
        for (row, cells) in rows.iter().zip(&cells) {
            line.clear();
            self.widths.write(cells, &mut line);
            said.extend_from_slice(line.as_bytes());
            self.coloured(row, &self.name(row), said);
            if let Some(target) = row.target(messages) {
                line.clear();
                // Writing to a string can't fail.
                let _ = write!(line, " -> {}", Shown(&target));
                said.extend_from_slice(line.as_bytes());
            }
            said.push(b'\n');
            attributes(row, said);
        }
    }

    fn json(
        &mut self,
        rows: &[Row<'_>],
        messages: &Messages,
        said: &mut Vec<u8>,
    ) -> Result<(), Problem> {
        let first = self.entries - rows.len() as u64;
        for (at, row) in rows.iter().enumerate() {
            let comma = if first + at as u64 > 0 { "," } else { "" };
            said.extend_from_slice(comma.as_bytes());
            said.extend_from_slice(b"\n  ");
            let (path, target) = (row.path(), row.target(messages));
            let entry = Entry::of(row, &path, target.as_deref(), &mut self.owners);
            serde_json::to_writer(&mut *said, &entry)
                .map_err(|e| Problem::of("cannot write JSON", e))?;
        }
        Ok(())
    }

    /// The name, or path, as it is shown.
    fn name(&self, row: &Row<'_>) -> String {
        let path: Cow<'_, Path> = match self.whole_paths {
            true => row.path(),
            false => Path::new(row.name).into(),
        };
        Shown(&path).to_string()
    }

    fn coloured(&self, row: &Row<'_>, name: &str, said: &mut Vec<u8>) {
        match self.colours.as_ref().and_then(|colours| colours.of(row)) {
            Some(colour) => {
                let parts = ["\x1b[", colour, "m", name, "\x1b[0m"];
                parts
                    .iter()
                    .for_each(|part| said.extend_from_slice(part.as_bytes()));
            }
            None => said.extend_from_slice(name.as_bytes()),
        }
    }
}

/// Extended attributes, each on a line of its own.
fn attributes(row: &Row<'_>, said: &mut Vec<u8>) {
    let shown = |bytes| Shown(Path::new(std::ffi::OsStr::from_bytes(bytes))).to_string();
    for Xattr { name, value } in row.xattrs.iter().flatten() {
        let value = value.map_or_else(|| "?".into(), shown);
        said.extend_from_slice(format!("\t{}={value}\n", shown(name)).as_bytes());
    }
}
