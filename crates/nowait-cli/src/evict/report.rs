//! The output: text or a JSON object, printed file by file.

use std::io::{self, Write};

use super::json::{Entry, Sum};
use nowait_page_cache::{Kind, Row, Totals, Why};

use crate::name::{DisplayPath, plural};
use crate::output::Output;
use crate::size::Size;

/// A description of a reason, with the option that helps.
fn text(kind: Kind) -> &'static str {
    match kind {
        Kind::Dirty => "dirty: --flush writes it first",
        Kind::Writeback => "being written: --flush waits for that",
        Kind::Mapped => "mapped by",
        Kind::Memory => "stored in memory only (tmpfs)",
        Kind::Held => {
            "held: used by the kernel, read again, or mapped by a process whose maps you may not read"
        }
        Kind::Mixed => {
            "dirty, being written or in use (cannot be told apart without cachestat): try --flush"
        }
    }
}

/// A report whose beginning is printed.
pub struct Report {
    out: Output,
    json: bool,
    dry_run: bool,
    rows: u64,
}

impl Report {
    /// Prints the beginning.
    pub fn begin(mut out: Output, json: bool, dry_run: bool) -> io::Result<Report> {
        if json {
            let version = env!("CARGO_PKG_VERSION");
            write!(
                out,
                "{{\"evict\": 1, \"version\": \"{version}\", \"dry_run\": {dry_run}, \"files\": ["
            )?;
        }
        Ok(Report {
            out,
            json,
            dry_run,
            rows: 0,
        })
    }

    /// Prints the next file.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        let path = DisplayPath(&row.path);
        if self.json {
            let comma = if self.rows > 0 { "," } else { "" };
            write!(self.out, "{comma}\n  ")?;
            serde_json::to_writer(&mut self.out, &Entry::of(row))?;
        } else if let Ok(counted) = row.counted {
            let (before, evicted) = (Size(counted.before), Size(counted.evicted));
            let stayed = Size(counted.stayed);
            match (counted.stayed, self.dry_run) {
                (0, false) => writeln!(self.out, "{path}: {evicted} evicted")?,
                (0, true) => writeln!(self.out, "{path}: {evicted} would be evicted")?,
                (_, false) => writeln!(self.out, "{path}: {stayed} stayed, {before} were cached")?,
                (_, true) => writeln!(self.out, "{path}: up to {stayed} of {before} would stay")?,
            }
            row.why.iter().try_for_each(|why| self.why(why))?;
        } else {
            writeln!(self.out, "{path}: unknown")?;
        }
        self.rows += 1;
        Ok(())
    }

    /// Prints one reason below its file.
    fn why(&mut self, why: &Why) -> io::Result<()> {
        let (bytes, text) = (Size(why.bytes).to_string(), text(why.kind));
        write!(self.out, "{bytes:>10} {text}")?;
        for (i, process) in why.by.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let locked = if process.locked { ", locked" } else { "" };
            // A process's name may contain any bytes.
            let command = DisplayPath(process.command.as_ref());
            write!(self.out, "{comma} {command} ({}{locked})", process.pid)?;
        }
        writeln!(self.out)
    }

    /// Prints the total, and what is unknown. If no file was found, the failures are enough.
    pub fn end(
        mut self,
        totals: &Totals,
        unreadable: Option<u64>,
        failed: u64,
        interrupted: bool,
    ) -> io::Result<()> {
        if self.json {
            write!(self.out, "\n], \"total\": ")?;
            serde_json::to_writer(
                &mut self.out,
                &Sum::of(totals, unreadable, failed, interrupted),
            )?;
            writeln!(self.out, "}}")?;
            return self.out.flush();
        }
        if totals.files == 0 && failed > 0 {
            return self.out.flush();
        }
        let (evicted, cached) = (Size(totals.evicted), Size(totals.cached));
        let files = plural(totals.files, "file");
        let (done, up_to, stay) = match self.dry_run {
            false => ("evicted", "", "stayed"),
            true => ("would evict", "up to ", "would stay"),
        };
        write!(self.out, "{done} {evicted} of {cached} in {files}")?;
        if totals.stayed > 0 {
            let (stayed, files) = (Size(totals.stayed), plural(totals.stayed_files, "file"));
            write!(self.out, "; {up_to}{stayed} {stay} in {files}:")?;
            for (i, (kind, bytes)) in totals.by_reason.iter().enumerate() {
                let comma = if i > 0 { "," } else { "" };
                write!(self.out, "{comma} {} {}", Size(*bytes), kind.word())?;
            }
        }
        writeln!(self.out)?;
        for unknown in &totals.unknown.0 {
            let (files, size) = (plural(unknown.files, "file"), Size(unknown.size));
            writeln!(self.out, "unknown: {files} ({size}): {}", unknown.why)?;
        }
        if let Some(unreadable @ 1..) = unreadable
            && totals.by_reason.contains_key(&Kind::Held)
        {
            let processes = plural(unreadable, "process");
            writeln!(
                self.out,
                "not examined: the maps of {processes}, which may map held pages"
            )?;
        }
        if interrupted {
            writeln!(self.out, "interrupted: the rest was not processed")?;
        }
        self.out.flush()
    }
}
