//! `nowait warm --metadata` loads inodes, and optionally extended attributes, into the kernel's
//! caches by querying them. It reads no file data.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use nowait::ErrorKind;
use nowait::StatxMask;
use nowait::scan::Xattrs;
use nowait_page_cache::{Batches, Given, PseudoMounts, given};
use serde::Serialize;

use crate::messages::Messages;
use crate::name::plural;
use crate::output::Output;
use crate::paths::{Kinds, Paths};
use crate::problem::{INTERRUPTED, Problem};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::terminal::Terminal;

/// The JSON format, for `--help`.
pub const JSON_FORMAT: &str = r#"With --metadata, the JSON object is
  {
    "warm": 1,             version of this format
    "version",             of nowait
    "metadata": true,
    "interrupted",
    "inodes",              queried inodes, including those of the given paths
    "directories",         listed directories
    "xattrs",              extended attributes that were read
    "failed",              failures reported on standard error
    "seconds"
  }"#;

/// The summary of a run.
#[derive(Serialize)]
struct Summary {
    /// The version of this JSON format.
    warm: u32,
    version: &'static str,
    metadata: bool,
    interrupted: bool,
    /// The number of queried inodes, including those of the given paths.
    inodes: u64,
    /// The number of listed directories.
    directories: u64,
    /// The number of extended attributes that were read.
    xattrs: u64,
    failed: u64,
    seconds: f64,
}

/// A stop was requested.
struct Stopped;

/// Loads the inodes of files and trees.
pub fn warm(paths: &Paths, xattrs: bool, json: bool) -> Result<ExitCode, Problem> {
    let stop = Stop::on_signals()?;
    let begun = Instant::now();
    let mut warmer = Warmer {
        paths,
        xattrs: if xattrs { Xattrs::Values } else { Xattrs::None },
        stop: &stop,
        progress: Progress::of_inodes(),
        inodes: 0,
        directories: 0,
        attributes: 0,
    };
    let messages = Messages::beside(&warmer.progress);
    let end = paths.each(&messages, &stop, |path| {
        match given(path, Kinds::Regular, &messages) {
            None => Ok(()),
            Some(Given::File(found)) => {
                warmer.file(&found.path(), &messages);
                if stop.asked() { Err(Stopped) } else { Ok(()) }
            }
            Some(Given::Directory) => warmer.tree(path, &messages),
        }
    });
    let summary = Summary {
        warm: 1,
        version: env!("CARGO_PKG_VERSION"),
        metadata: true,
        interrupted: end.is_err(),
        inodes: warmer.inodes,
        directories: warmer.directories,
        xattrs: warmer.attributes,
        failed: messages.failures(),
        seconds: begun.elapsed().as_secs_f64(),
    };
    drop(warmer);
    summary.print(json)?;
    Ok(match summary.interrupted {
        true => ExitCode::from(INTERRUPTED),
        false => messages.exit_code(),
    })
}

struct Warmer<'a> {
    paths: &'a Paths,
    xattrs: Xattrs,
    stop: &'a Stop,
    progress: Progress,
    inodes: u64,
    directories: u64,
    attributes: u64,
}

impl Warmer<'_> {
    /// Counts a given file, whose inode is already loaded, and loads its extended attributes if
    /// requested.
    fn file(&mut self, path: &Path, messages: &Messages) {
        self.inodes += 1;
        if self.xattrs == Xattrs::None {
            return;
        }
        match rustix::fs::listxattr(path, &mut [0u8; 0][..]) {
            Ok(_) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(why) => messages.failure(path, why),
        }
    }

    fn tree(&mut self, root: &Path, messages: &Messages) -> Result<(), Stopped> {
        let options = self
            .paths
            .walking()
            .metadata(StatxMask::BASIC_STATS)
            .xattrs(self.xattrs);
        let pseudo = PseudoMounts::below(root);
        let options = pseudo.skipped_by(options);
        let Some(mut batches) = Batches::open(root, &options, messages, self.stop) else {
            return Ok(());
        };
        self.inodes += 1;
        let before = self.directories;
        while let Some(found) = batches.next() {
            match found {
                Ok(found) => self.found(&found, messages),
                Err(error) => messages.error(root, false, &error),
            }
            self.directories = before + batches.stats().directories;
            let listed = format!("in {}", plural(self.directories, "directory"));
            self.progress.at(self.inodes, listed);
        }
        self.directories = before + batches.stats().directories;
        pseudo.report(messages);
        if self.stop.asked() {
            Err(Stopped)
        } else {
            Ok(())
        }
    }

    fn found(&mut self, found: &nowait::scan::Batch, messages: &Messages) {
        let directory = &*found.dir().path();
        for entry in found.iter() {
            match entry.metadata() {
                Some(Err(error)) => messages.error(directory, false, &error),
                _ => self.inodes += 1,
            }
            match entry.xattrs() {
                Some(Ok(found)) => self.attributes += found.count() as u64,
                Some(Err(error)) if error.kind() != ErrorKind::Unsupported => {
                    messages.error(directory, false, &error);
                }
                _ => {}
            }
        }
    }
}

impl Summary {
    fn print(&self, json: bool) -> Result<(), Problem> {
        let mut out = Output::new(Terminal::look());
        if json {
            serde_json::to_writer_pretty(&mut out, self)
                .map_err(|e| Problem::of("cannot write JSON", e))?;
            writeln!(out)?;
        } else {
            let rate = (self.inodes as f64 / self.seconds) as u64;
            write!(
                out,
                "{} in {}",
                plural(self.inodes, "inode"),
                plural(self.directories, "directory")
            )?;
            if self.xattrs > 0 {
                write!(out, ", {}", plural(self.xattrs, "extended attribute"))?;
            }
            writeln!(out, ": {:.1} s ({rate}/s)", self.seconds)?;
            if self.interrupted {
                writeln!(out, "interrupted: the rest was not processed")?;
            }
        }
        Ok(out.flush()?)
    }
}
