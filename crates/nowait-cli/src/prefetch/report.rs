//! The summary of a run, as text and as JSON.

use std::io::{self, Write};
use std::process::ExitCode;

use nowait_page_cache::{Recount, Summary};
use serde_json::{Value, json};

use crate::messages::Messages;
use crate::name::plural;
use crate::problem::{INTERRUPTED, Problem};
use crate::size::Size;
use crate::unknown::Why;

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

/// Prints the summary and returns the exit code: 130 if interrupted, 1 if there were failures
/// or bytes were not read, otherwise 0.
pub fn print(
    summary: &Summary,
    verb: &'static str,
    json: bool,
    messages: &Messages,
) -> Result<ExitCode, Problem> {
    let mut out = io::stdout().lock();
    let printed = if json {
        writeln!(out, "{:#}", to_json(summary, verb, messages))
    } else if summary.files == 0 && messages.failures() > 0 {
        // The failures are enough.
        Ok(())
    } else {
        to_text(summary, &mut out).and_then(|()| remarks(summary, &mut out))
    };
    match printed.and_then(|()| out.flush()) {
        // The reader may close the pipe early.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(e.into()),
        _ => {}
    }
    Ok(if summary.interrupted {
        ExitCode::from(INTERRUPTED)
    } else if summary.not_read_bytes > 0 && !summary.dry_run {
        ExitCode::from(1)
    } else {
        messages.exit_code()
    })
}

fn to_json(summary: &Summary, verb: &'static str, messages: &Messages) -> Value {
    json!({
        (verb): 1,
        "version": env!("CARGO_PKG_VERSION"),
        "dry_run": summary.dry_run,
        "interrupted": summary.interrupted,
        "files": summary.files,
        "other_names": summary.other_names,
        "skipped": summary.skipped,
        "failed": messages.failures(),
        "bytes": summary.data,
        "hole_bytes": summary.holes,
        "cached_before": summary.cached_before,
        "read_bytes": summary.read_bytes,
        "cached_after": summary.cached_after,
        "unknown": Why::all(&summary.unknown),
        "not_read": {
            "files": summary.not_read_files,
            "bytes": summary.not_read_bytes,
            "why": summary.not_read_reason,
        },
        "sample": {
            "files": summary.sample.files,
            "cached_pages_before": summary.sample.then,
            "cached_pages_at_end": summary.sample.now,
        },
        "seconds": summary.seconds,
        "bytes_per_s": summary.rate(),
        "backend": summary.backend,
    })
}

fn to_text(summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    let size = |bytes| Size(bytes).to_string();
    write!(out, "{}", plural(summary.files, "file"))?;
    if summary.other_names > 0 {
        write!(out, " ({})", plural(summary.other_names, "more name"))?;
    }
    let mut examined = size(summary.data);
    if summary.holes > 0 {
        examined += &format!(" and {} of holes", size(summary.holes));
    }
    match summary.interrupted {
        false => write!(out, ", {examined}")?,
        // The rest of a file in progress was not examined.
        true => write!(out, ", of which {examined} were examined")?,
    }
    let unknown: u64 = summary.unknown.0.iter().map(|unknown| unknown.files).sum();
    let some_known = unknown < summary.files;
    if some_known {
        write!(out, "; {} were cached before", size(summary.cached_before))?;
    }
    writeln!(out)?;
    if summary.dry_run {
        writeln!(out, "would read {}", size(summary.read_bytes))?;
    } else {
        let (read_bytes, rate) = (size(summary.read_bytes), size(summary.rate()));
        writeln!(
            out,
            "read {read_bytes} in {:.1} s ({rate}/s)",
            summary.seconds
        )?;
    }
    if some_known && !summary.dry_run {
        writeln!(out, "cached now {}", size(summary.cached_after))?;
    }
    Ok(())
}

/// Prints what was not read, and why.
fn remarks(summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    let size = |bytes| Size(bytes).to_string();
    for unknown in &summary.unknown.0 {
        let (files, size) = (plural(unknown.files, "file"), size(unknown.size));
        let (what, why) = (
            if summary.dry_run { "would be" } else { "was" },
            unknown.why,
        );
        writeln!(
            out,
            "unknown: {files} ({size}): {why}; all of it {what} read"
        )?;
    }
    if summary.not_read_bytes > 0 {
        let (files, bytes) = (
            plural(summary.not_read_files, "file"),
            size(summary.not_read_bytes),
        );
        let why = summary.not_read_reason.as_deref().unwrap_or("");
        writeln!(out, "not read: {bytes} of {files}: {why}; see --budget")?;
    }
    if summary.skipped > 0 {
        writeln!(
            out,
            "skipped {}: changed since the snapshot, or invalid entries",
            plural(summary.skipped, "file")
        )?;
    }
    if summary.sample.now < summary.sample.then {
        let Recount { files, then, now } = summary.sample;
        writeln!(
            out,
            "evicted again meanwhile: {} of {} in a sample of {}",
            then - now,
            plural(then, "page"),
            plural(files, "file")
        )?;
    }
    if summary.interrupted {
        writeln!(out, "interrupted: the rest was not processed")?;
    }
    Ok(())
}
