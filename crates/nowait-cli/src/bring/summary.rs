//! What came of it, for people and as JSON.

use std::io::{self, Write};
use std::process::ExitCode;

use nowait::engine::LocalEngine;
use serde_json::{Value, json};

use super::job::Sums;
use super::limits::Limits;
use super::witness::Look;
use crate::problem::{INTERRUPTED, Problem};
use crate::remark::Remarks;
use crate::size::Size;

/// Sums over all files. Bytes are those of the ranges that were asked for.
#[derive(Debug)]
pub struct Summary {
    /// Files that were opened and dealt with.
    pub files: u64,
    /// Files that were not what they had been.
    pub skipped: u64,
    /// Files that could not be opened or read.
    pub failed: u64,
    /// In holes: nothing to read.
    holes: u64,
    data: u64,
    cached_before: u64,
    pub brought: u64,
    /// Cached when a file was done with.
    cached_after: u64,
    pub unknown_files: u64,
    unknown_bytes: u64,
    left_out_files: u64,
    left_out_bytes: u64,
    left_out_why: Option<String>,
    pub stayed: Look,
    pub seconds: f64,
    pub interrupted: bool,
    dry_run: bool,
    backend: &'static str,
}

/// What the JSON of a summary is, for `--help`.
pub const SHAPE: &str = "\
\"version\": 1, \"dry_run\", \"interrupted\", \"files\", \"skipped\", \"failed\", \"bytes\", \"hole_bytes\", \
\"cached_before\", \"brought\", \"cached_after\", \"unknown\": {\"files\", \"bytes\"}, \"left_out\": {\"files\", \
\"bytes\", \"why\"}, \"stayed\": {\"files\", \"pages_then\", \"pages_now\"}, \"seconds\", \"bytes_per_s\", \
\"backend\"";

impl Summary {
    /// Of nothing yet.
    pub fn new(engine: &LocalEngine, limits: &Limits) -> Summary {
        Summary {
            files: 0,
            skipped: 0,
            failed: 0,
            holes: 0,
            data: 0,
            cached_before: 0,
            brought: 0,
            cached_after: 0,
            unknown_files: 0,
            unknown_bytes: 0,
            left_out_files: 0,
            left_out_bytes: 0,
            left_out_why: None,
            stayed: Look::default(),
            seconds: 0.0,
            interrupted: false,
            dry_run: limits.dry_run,
            backend: engine.backend().name(),
        }
    }

    /// Adds one file; `cached` is what of it is cached now, if that is known.
    pub fn add(&mut self, sums: &Sums, cached: Option<u64>) {
        self.files += 1;
        self.holes += sums.holes;
        self.data += sums.data;
        self.brought += sums.brought;
        match cached {
            Some(cached) => {
                self.cached_before += sums.data - sums.missing;
                self.cached_after += cached;
            }
            None => {
                self.unknown_files += 1;
                self.unknown_bytes += sums.data;
            }
        }
        self.left_out_files += u64::from(sums.left_out > 0);
        self.left_out_bytes += sums.left_out;
    }

    /// From now on nothing more is brought; the first reason counts.
    pub fn left_out_because(&mut self, why: impl FnOnce() -> String) {
        self.left_out_why.get_or_insert_with(why);
    }

    /// Whether nothing more is to be brought.
    pub fn is_full(&self) -> bool {
        self.left_out_why.is_some()
    }

    /// Prints it, and says how the verb ends: 130 if interrupted, 1 if something could not be done
    /// or was left out.
    pub fn print(
        &self,
        verb: &'static str,
        json: bool,
        remarks: &Remarks,
    ) -> Result<ExitCode, Problem> {
        let mut out = io::stdout().lock();
        let printed = if json {
            writeln!(out, "{:#}", self.to_json(verb))
        } else {
            self.for_people(&mut out)
        };
        match printed.and_then(|()| out.flush()) {
            // Whoever closed the pipe has read enough.
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(e.into()),
            _ => {}
        }
        Ok(if self.interrupted {
            ExitCode::from(INTERRUPTED)
        } else if self.left_out_bytes > 0 && !self.dry_run {
            ExitCode::from(1)
        } else {
            remarks.exit_code()
        })
    }

    fn to_json(&self, verb: &'static str) -> Value {
        json!({
            "verb": verb,
            "version": 1,
            "dry_run": self.dry_run,
            "interrupted": self.interrupted,
            "files": self.files,
            "skipped": self.skipped,
            "failed": self.failed,
            "bytes": self.data,
            "hole_bytes": self.holes,
            "cached_before": self.cached_before,
            "brought": self.brought,
            "cached_after": self.cached_after,
            "unknown": {"files": self.unknown_files, "bytes": self.unknown_bytes},
            "left_out": {
                "files": self.left_out_files,
                "bytes": self.left_out_bytes,
                "why": self.left_out_why,
            },
            "stayed": {
                "files": self.stayed.files,
                "pages_then": self.stayed.then,
                "pages_now": self.stayed.now,
            },
            "seconds": self.seconds,
            "bytes_per_s": self.rate(),
            "backend": self.backend,
        })
    }

    fn rate(&self) -> u64 {
        if self.dry_run || self.seconds == 0.0 {
            0
        } else {
            (self.brought as f64 / self.seconds) as u64
        }
    }

    fn for_people(&self, out: &mut impl Write) -> io::Result<()> {
        let size = |bytes| Size(bytes).to_string();
        write!(out, "{}, {}", Files(self.files), size(self.data))?;
        if self.holes > 0 {
            write!(out, " and {} of holes", size(self.holes))?;
        }
        if self.unknown_files < self.files {
            write!(out, "; {} were cached before", size(self.cached_before))?;
        }
        writeln!(out)?;
        if self.dry_run {
            writeln!(out, "would bring {}", size(self.brought))?;
        } else {
            let (brought, rate) = (size(self.brought), size(self.rate()));
            writeln!(out, "brought {brought} in {:.1} s ({rate}/s)", self.seconds)?;
        }
        if self.unknown_files < self.files && !self.dry_run {
            writeln!(out, "cached now {}", size(self.cached_after))?;
        }
        if self.unknown_files > 0 {
            let (files, bytes) = (Files(self.unknown_files), size(self.unknown_bytes));
            writeln!(
                out,
                "unknown: nobody can say what is cached of {files}, {bytes}"
            )?;
        }
        if self.left_out_bytes > 0 {
            let (files, bytes) = (Files(self.left_out_files), size(self.left_out_bytes));
            let why = self.left_out_why.as_deref().unwrap_or("");
            writeln!(out, "left out {bytes} of {files}: {why}; see --budget")?;
        }
        if self.skipped > 0 {
            writeln!(out, "skipped {}: not what was noted", Files(self.skipped))?;
        }
        if self.stayed.now < self.stayed.then {
            let Look { files, then, now } = self.stayed;
            writeln!(
                out,
                "of {then} pages of {} that were looked at again, {} have left the page cache \
                 meanwhile",
                Files(files),
                then - now
            )?;
        }
        if self.interrupted {
            writeln!(out, "interrupted: the rest was not done")?;
        }
        Ok(())
    }
}

/// So many files, in words.
struct Files(u64);

impl std::fmt::Display for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} file{plural}", self.0)
    }
}
