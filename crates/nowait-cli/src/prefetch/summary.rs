//! The summary of a run, as text and as JSON.

use std::io::{self, Write};
use std::process::ExitCode;

use nowait::engine::LocalEngine;
use nowait::residency::Answer;
use serde_json::{Value, json};

use super::job::Sums;
use super::limits::Limits;
use super::sample::Recount;
use crate::messages::Messages;
use crate::name::plural;
use crate::problem::{INTERRUPTED, Problem};
use crate::size::Size;
use crate::unknown::Unknowns;

/// The totals over all files. Bytes are counted in the requested ranges.
#[derive(Debug)]
pub struct Summary {
    /// The number of processed files.
    pub files: u64,
    /// The number of files that changed since the snapshot, and of invalid entries.
    pub skipped: u64,
    /// The number of further names of processed files.
    pub other_names: u64,
    /// Bytes in holes. They are not read.
    holes: u64,
    data: u64,
    cached_before: u64,
    pub read_bytes: u64,
    /// Bytes that were cached when their file was finished.
    cached_after: u64,
    /// The files of unknown residency. They were read completely.
    unknown: Unknowns,
    not_read_files: u64,
    not_read_bytes: u64,
    not_read_reason: Option<String>,
    pub sample: Recount,
    pub seconds: f64,
    pub interrupted: bool,
    dry_run: bool,
    backend: &'static str,
}

/// The description of the JSON format for `--help`, after the line with the version.
pub const JSON_FORMAT: &str = r#"
    "version",             of nowait
    "dry_run", "interrupted",
    "files",               opened and processed files
    "other_names",         further names of processed files
    "skipped",             files that changed since the snapshot, and invalid
                           entries
    "failed",              failures reported on standard error
    "bytes",               requested bytes without holes, like all bytes here
    "hole_bytes",          requested bytes in holes; they are not read
    "cached_before", "cached_after",
                           of the files of known residency
    "read_bytes",          missing or unknown bytes that were read; in a dry
                           run: that would be read
    "unknown": [{"why", "files", "size"}],
                           files of unknown residency; they were read
                           completely
    "not_read": {"files", "bytes", "why"},
                           because of the budget; why: null if all were read
    "sample": {"files", "cached_pages_before", "cached_pages_at_end"},
                           finished files that were examined again at the end
    "seconds", "bytes_per_s",
    "backend"              of the engine: uring or threads
  }
In an interrupted run, sizes cover the part that was processed. A sum of 2^64 bytes or more is
18446744073709551615. Later programs may add keys without changing the version."#;

impl Summary {
    /// An empty summary.
    pub fn new(engine: &LocalEngine, limits: &Limits) -> Summary {
        Summary {
            files: 0,
            skipped: 0,
            other_names: 0,
            holes: 0,
            data: 0,
            cached_before: 0,
            read_bytes: 0,
            cached_after: 0,
            unknown: Unknowns::default(),
            not_read_files: 0,
            not_read_bytes: 0,
            not_read_reason: None,
            sample: Recount::default(),
            seconds: 0.0,
            interrupted: false,
            dry_run: limits.dry_run,
            backend: engine.backend().name(),
        }
    }

    /// Adds one file, with the number of its bytes that are cached now.
    pub fn add(&mut self, sums: &Sums, cached: Answer<u64>) {
        let add = |sum: &mut u64, bytes| *sum = sum.saturating_add(bytes);
        self.files += 1;
        add(&mut self.holes, sums.holes);
        add(&mut self.data, sums.data);
        add(&mut self.read_bytes, sums.read_bytes);
        match cached {
            Answer::Known { value, .. } => {
                add(&mut self.cached_before, sums.data - sums.missing);
                add(&mut self.cached_after, value);
            }
            Answer::Unknown(why) => self.unknown.add(why, sums.data),
        }
        self.not_read_files += u64::from(sums.not_read > 0);
        add(&mut self.not_read_bytes, sums.not_read);
    }

    /// Records the reason why no more data is read. The first reason is kept.
    pub fn stop_reading(&mut self, why: impl FnOnce() -> String) {
        self.not_read_reason.get_or_insert_with(why);
    }

    /// Returns true if no more data is read.
    pub fn is_full(&self) -> bool {
        self.not_read_reason.is_some()
    }

    /// Prints the summary and returns the exit code: 130 if interrupted, 1 if there were failures
    /// or bytes were not read, otherwise 0.
    pub fn print(
        &self,
        verb: &'static str,
        json: bool,
        messages: &Messages,
    ) -> Result<ExitCode, Problem> {
        let mut out = io::stdout().lock();
        let printed = if json {
            writeln!(out, "{:#}", self.to_json(verb, messages))
        } else {
            self.to_text(&mut out)
        };
        match printed.and_then(|()| out.flush()) {
            // The reader may close the pipe early.
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(e.into()),
            _ => {}
        }
        Ok(if self.interrupted {
            ExitCode::from(INTERRUPTED)
        } else if self.not_read_bytes > 0 && !self.dry_run {
            ExitCode::from(1)
        } else {
            messages.exit_code()
        })
    }

    fn to_json(&self, verb: &'static str, messages: &Messages) -> Value {
        json!({
            (verb): 1,
            "version": env!("CARGO_PKG_VERSION"),
            "dry_run": self.dry_run,
            "interrupted": self.interrupted,
            "files": self.files,
            "other_names": self.other_names,
            "skipped": self.skipped,
            "failed": messages.failures(),
            "bytes": self.data,
            "hole_bytes": self.holes,
            "cached_before": self.cached_before,
            "read_bytes": self.read_bytes,
            "cached_after": self.cached_after,
            "unknown": self.unknown.why(),
            "not_read": {
                "files": self.not_read_files,
                "bytes": self.not_read_bytes,
                "why": self.not_read_reason,
            },
            "sample": {
                "files": self.sample.files,
                "cached_pages_before": self.sample.then,
                "cached_pages_at_end": self.sample.now,
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
            (self.read_bytes as f64 / self.seconds) as u64
        }
    }

    fn to_text(&self, out: &mut impl Write) -> io::Result<()> {
        let size = |bytes| Size(bytes).to_string();
        write!(out, "{}", plural(self.files, "file"))?;
        if self.other_names > 0 {
            write!(out, " ({})", plural(self.other_names, "more name"))?;
        }
        let mut examined = size(self.data);
        if self.holes > 0 {
            examined += &format!(" and {} of holes", size(self.holes));
        }
        match self.interrupted {
            false => write!(out, ", {examined}")?,
            // The rest of a file in progress was not examined.
            true => write!(out, ", of which {examined} were examined")?,
        }
        let unknown: u64 = self.unknown.0.iter().map(|unknown| unknown.files).sum();
        let some_known = unknown < self.files;
        if some_known {
            write!(out, "; {} were cached before", size(self.cached_before))?;
        }
        writeln!(out)?;
        if self.dry_run {
            writeln!(out, "would read {}", size(self.read_bytes))?;
        } else {
            let (read_bytes, rate) = (size(self.read_bytes), size(self.rate()));
            writeln!(out, "read {read_bytes} in {:.1} s ({rate}/s)", self.seconds)?;
        }
        if some_known && !self.dry_run {
            writeln!(out, "cached now {}", size(self.cached_after))?;
        }
        for unknown in &self.unknown.0 {
            let (files, size) = (plural(unknown.files, "file"), size(unknown.size));
            let (what, why) = (if self.dry_run { "would be" } else { "was" }, unknown.why);
            writeln!(
                out,
                "unknown: {files} ({size}): {why}; all of it {what} read"
            )?;
        }
        if self.not_read_bytes > 0 {
            let (files, bytes) = (
                plural(self.not_read_files, "file"),
                size(self.not_read_bytes),
            );
            let why = self.not_read_reason.as_deref().unwrap_or("");
            writeln!(out, "not read: {bytes} of {files}: {why}; see --budget")?;
        }
        if self.skipped > 0 {
            writeln!(
                out,
                "skipped {}: changed since the snapshot, or invalid entries",
                plural(self.skipped, "file")
            )?;
        }
        if self.sample.now < self.sample.then {
            let Recount { files, then, now } = self.sample;
            writeln!(
                out,
                "evicted again meanwhile: {} of {then} pages in a sample of {}",
                then - now,
                plural(files, "file")
            )?;
        }
        if self.interrupted {
            writeln!(out, "interrupted: the rest was not processed")?;
        }
        Ok(())
    }
}
