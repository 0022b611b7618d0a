//! What came of it, for people and as JSON.
//!
//! # The JSON shape, version 1 (keys may be added within it)
//! ```text
//! {
//!   "warm" | "restore": 1,            version of this shape
//!   "version": "0.1.0",               of nowait
//!   "dry_run", "interrupted",
//!   "files",                          that were opened and dealt with
//!   "other_names",                    of files that were dealt with under another
//!   "skipped",                        changed since a snapshot, or no entry of one
//!   "failed",                         what was said on standard error, and makes exit code 1
//!   "bytes",                          wanted, holes left aside; as is every count of bytes here
//!   "hole_bytes",                     nothing to read
//!   "cached_before", "cached_after",  of the files of which that is known
//!   "brought",                        read because they were missing, or nobody knew; of a dry
//!                                     run: to be read
//!   "unknown": [{"why", "files", "size"}],   nobody can say what of them is cached; all was read
//!   "left_out": {"files", "bytes", "why"},   why: null if nothing was
//!   "stayed": {"files", "pages_then", "pages_now"},   files looked at again in the end
//!   "seconds", "bytes_per_s",
//!   "backend"                         of the engine: uring or threads
//! }
//! ```

use std::io::{self, Write};
use std::process::ExitCode;

use nowait::engine::LocalEngine;
use nowait::residency::Answer;
use serde_json::{Value, json};

use super::job::Sums;
use super::limits::Limits;
use super::witness::Look;
use crate::name::plural;
use crate::problem::{INTERRUPTED, Problem};
use crate::remark::Remarks;
use crate::size::Size;
use crate::unknown::Unknowns;

/// Sums over all files. Bytes are those of the ranges that were asked for.
#[derive(Debug)]
pub struct Summary {
    /// Files that were opened and dealt with.
    pub files: u64,
    /// Files that were not what they had been.
    pub skipped: u64,
    /// Further names of files that were dealt with.
    pub other_names: u64,
    /// In holes: nothing to read.
    holes: u64,
    data: u64,
    cached_before: u64,
    pub brought: u64,
    /// Cached when a file was done with.
    cached_after: u64,
    /// Nobody can say what of these is cached; all of them was read.
    unknown: Unknowns,
    left_out_files: u64,
    left_out_bytes: u64,
    left_out_why: Option<String>,
    pub stayed: Look,
    pub seconds: f64,
    pub interrupted: bool,
    dry_run: bool,
    backend: &'static str,
}

/// What the JSON of a summary is, for `--help`: its keys, and what they mean.
pub const SHAPE: &str = "\
\"version\", \"dry_run\", \"interrupted\", \"files\", \"other_names\", \"skipped\", \"failed\", \"bytes\", \
\"hole_bytes\", \"cached_before\", \"brought\", \"cached_after\", \"unknown\": [{\"why\", \"files\", \"size\"}], \
\"left_out\": {\"files\", \"bytes\", \"why\"}, \"stayed\": {\"files\", \"pages_then\", \"pages_now\"}, \
\"seconds\", \"bytes_per_s\", \"backend\"}. Sizes are bytes of the files, without their holes (hole_bytes); \
of an interrupted run, of what was looked at until then. other_names are of files that were met before. \
brought is what was missing and was read, in a dry run what would be; cached_before and cached_after \
are of the files of which that is known; stayed is about files that were looked at again in the end; \
why is null if nothing was left out. The verb's own key is the version of this shape; keys may be added \
within it.";

impl Summary {
    /// Of nothing yet.
    pub fn new(engine: &LocalEngine, limits: &Limits) -> Summary {
        Summary {
            files: 0,
            skipped: 0,
            other_names: 0,
            holes: 0,
            data: 0,
            cached_before: 0,
            brought: 0,
            cached_after: 0,
            unknown: Unknowns::default(),
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

    /// Adds one file, with what of it is cached now.
    pub fn add(&mut self, sums: &Sums, cached: Answer<u64>) {
        self.files += 1;
        self.holes += sums.holes;
        self.data += sums.data;
        self.brought += sums.brought;
        match cached {
            Answer::Known { value, .. } => {
                self.cached_before += sums.data - sums.missing;
                self.cached_after += value;
            }
            Answer::Unknown(why) => self.unknown.add(why, sums.data),
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
            writeln!(out, "{:#}", self.to_json(verb, remarks))
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

    fn to_json(&self, verb: &'static str, remarks: &Remarks) -> Value {
        json!({
            (verb): 1,
            "version": env!("CARGO_PKG_VERSION"),
            "dry_run": self.dry_run,
            "interrupted": self.interrupted,
            "files": self.files,
            "other_names": self.other_names,
            "skipped": self.skipped,
            "failed": remarks.failures(),
            "bytes": self.data,
            "hole_bytes": self.holes,
            "cached_before": self.cached_before,
            "brought": self.brought,
            "cached_after": self.cached_after,
            "unknown": self.unknown.why(),
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
        write!(out, "{}", plural(self.files, "file"))?;
        if self.other_names > 0 {
            write!(out, " ({})", plural(self.other_names, "more name"))?;
        }
        let mut looked_at = size(self.data);
        if self.holes > 0 {
            looked_at += &format!(" and {} of holes", size(self.holes));
        }
        match self.interrupted {
            false => write!(out, ", {looked_at}")?,
            // Of a file that was begun, no more is known than that.
            true => write!(out, ", of which {looked_at} were looked at")?,
        }
        let unknown: u64 = self.unknown.0.iter().map(|unknown| unknown.files).sum();
        let some_known = unknown < self.files;
        if some_known {
            write!(out, "; {} were cached before", size(self.cached_before))?;
        }
        writeln!(out)?;
        if self.dry_run {
            writeln!(out, "would bring {}", size(self.brought))?;
        } else {
            let (brought, rate) = (size(self.brought), size(self.rate()));
            writeln!(out, "brought {brought} in {:.1} s ({rate}/s)", self.seconds)?;
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
        if self.left_out_bytes > 0 {
            let (files, bytes) = (
                plural(self.left_out_files, "file"),
                size(self.left_out_bytes),
            );
            let why = self.left_out_why.as_deref().unwrap_or("");
            writeln!(out, "left out {bytes} of {files}: {why}; see --budget")?;
        }
        if self.skipped > 0 {
            writeln!(
                out,
                "skipped {}: not what was noted",
                plural(self.skipped, "file")
            )?;
        }
        if self.stayed.now < self.stayed.then {
            let Look { files, then, now } = self.stayed;
            writeln!(
                out,
                "of {then} pages of {} that were looked at again, {} have left the page cache \
                 meanwhile",
                plural(files, "file"),
                then - now
            )?;
        }
        if self.interrupted {
            writeln!(out, "interrupted: the rest was not done")?;
        }
        Ok(())
    }
}
