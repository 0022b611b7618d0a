//! The output: a table or a JSON object, printed file by file.

use std::io::{self, Write};

use super::column::Columns;
use super::json::{Entry, Sum};
use super::row::{CachedRanges, Row, bytes};
use super::totals::Totals;
use crate::name::plural;
use crate::output::Output;
use crate::size::Size;

/// The form of the output.
#[derive(Clone, Debug)]
pub enum Form {
    Json {
        columns: Columns,
        /// True if only the columns are printed.
        selected: bool,
    },
    /// A table for people, with a heading and a total.
    Table(Columns),
    /// A table for scripts: no total.
    Rows { columns: Columns, headings: bool },
}

/// A report whose beginning is printed.
pub struct Report {
    out: Output,
    form: Form,
    rows: u64,
}

impl Report {
    /// Prints the beginning.
    pub fn begin(mut out: Output, form: Form) -> io::Result<Report> {
        if let Form::Json { .. } = form {
            let (version, page) = (env!("CARGO_PKG_VERSION"), bytes(1));
            write!(
                out,
                "{{\"format\": 1, \"version\": \"{version}\", \"page_size\": {page}, \"fincore\": ["
            )?;
        }
        let mut report = Report { out, form, rows: 0 };
        if let Form::Rows {
            columns,
            headings: true,
        } = &report.form
        {
            writeln!(report.out, "{}", columns.headings())?;
        }
        Ok(report)
    }

    /// Prints the next file.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        if self.rows == 0 {
            self.heading()?;
        }
        match &self.form {
            Form::Json { columns, selected } => {
                let comma = if self.rows > 0 { "," } else { "" };
                write!(self.out, "{comma}\n  ")?;
                let entry = Entry {
                    row,
                    columns,
                    selected: *selected,
                };
                serde_json::to_writer(&mut self.out, &entry)?;
            }
            Form::Table(columns) | Form::Rows { columns, .. } => {
                writeln!(self.out, "{}", columns.row(row))?;
                if let CachedRanges::Strip(strip) = &row.examined.ranges {
                    writeln!(self.out, "{strip}")?;
                }
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Prints the total, and what is not included in it. If no file was found, the failures are enough.
    pub fn end(mut self, totals: &Totals, failed: u64, interrupted: bool) -> io::Result<()> {
        match &self.form {
            Form::Json { .. } => {
                write!(self.out, "\n], \"total\": ")?;
                let sum = Sum::of(totals, failed, interrupted);
                serde_json::to_writer(&mut self.out, &sum)?;
                writeln!(self.out, "}}")?;
            }
            Form::Rows { .. } => {
                let mut err = io::stderr().lock();
                // The reasons are not rows.
                let _ = unknown(&mut err, totals, "nowait: ");
                if interrupted {
                    let _ = writeln!(err, "nowait: interrupted");
                }
            }
            Form::Table(_) if totals.files == 0 && failed > 0 => {}
            Form::Table(columns) => {
                let columns = columns.clone();
                self.table_end(&columns, totals, interrupted)?;
            }
        }
        self.out.flush()
    }

    fn table_end(
        &mut self,
        columns: &Columns,
        totals: &Totals,
        interrupted: bool,
    ) -> io::Result<()> {
        if totals.files != 1 || self.rows != 1 {
            if self.rows == 0 {
                self.heading()?;
            }
            let name = format!("total of {}", plural(totals.files, "file"));
            writeln!(self.out, "{}", columns.total(totals, &name))?;
        }
        unknown(&mut self.out, totals, "")?;
        if totals.dirty_unknown > 0 {
            let files = plural(totals.dirty_unknown, "file");
            writeln!(
                self.out,
                "not counted: dirty pages of {files}: mincore does not report them"
            )?;
        }
        if totals.unasked > 0 {
            let size = Size(bytes(totals.unasked));
            writeln!(
                self.out,
                "not queried: {size} of large holes, counted as not cached"
            )?;
        }
        if totals.other_names > 0 {
            let names = plural(totals.other_names, "other name");
            writeln!(self.out, "not in the total: {names} of counted files")?;
        }
        if interrupted {
            writeln!(self.out, "interrupted: the rest was not examined")?;
        }
        Ok(())
    }

    fn heading(&mut self) -> io::Result<()> {
        match &self.form {
            Form::Table(columns) => writeln!(self.out, "{}", columns.headings()),
            _ => Ok(()),
        }
    }
}

/// Prints the files of unknown residency, by reason.
fn unknown(out: &mut impl Write, totals: &Totals, prefix: &str) -> io::Result<()> {
    totals.unknown.0.iter().try_for_each(|unknown| {
        let (files, size) = (plural(unknown.files, "file"), Size(unknown.size));
        writeln!(out, "{prefix}unknown: {files} ({size}): {}", unknown.why)
    })
}
