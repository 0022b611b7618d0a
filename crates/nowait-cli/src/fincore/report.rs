//! The output: a table or a JSON object, printed file by file.

use std::io::{self, Write};

use super::json::{Entry, Sum};
use super::line::Line;
use super::row::{CachedRanges, Row, bytes};
use super::totals::Totals;
use crate::name::{Shown, plural};
use crate::output::Output;
use crate::size::Size;

/// A report whose beginning is printed.
pub struct Report {
    out: Output,
    json: bool,
    rows: u64,
}

impl Report {
    /// Prints the beginning.
    pub fn begin(mut out: Output, json: bool) -> io::Result<Report> {
        if json {
            let (version, page) = (env!("CARGO_PKG_VERSION"), bytes(1));
            write!(
                out,
                "{{\"fincore\": 1, \"version\": \"{version}\", \"page_size\": {page}, \"files\": ["
            )?;
        }
        Ok(Report { out, json, rows: 0 })
    }

    /// Prints the next file.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        if self.json {
            let comma = if self.rows > 0 { "," } else { "" };
            write!(self.out, "{comma}\n  ")?;
            serde_json::to_writer(&mut self.out, &Entry::of(row))?;
        } else {
            self.heading()?;
            writeln!(self.out, "{} {}", Line::of(&row.examined), Shown(&row.path))?;
            if let CachedRanges::Strip(strip) = &row.examined.ranges {
                writeln!(self.out, "{strip}")?;
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Prints the total, and what is not included in it.
    pub fn end(mut self, totals: &Totals, failed: u64) -> io::Result<()> {
        if self.json {
            write!(self.out, "\n], \"total\": ")?;
            serde_json::to_writer(&mut self.out, &Sum::of(totals, failed))?;
            writeln!(self.out, "}}")?;
            return self.out.flush();
        }
        if totals.files != 1 || self.rows != 1 {
            self.heading()?;
            let files = plural(totals.files, "file");
            writeln!(self.out, "{} total of {files}", Line::of_all(totals))?;
        }
        for unknown in &totals.unknown.0 {
            let (files, size) = (plural(unknown.files, "file"), Size(unknown.size));
            let why = unknown.why;
            writeln!(self.out, "unknown: {files} ({size}): {why}")?;
        }
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
        self.out.flush()
    }

    fn heading(&mut self) -> io::Result<()> {
        match self.rows {
            0 => writeln!(self.out, "{} PATH", Line::heading()),
            _ => Ok(()),
        }
    }
}
