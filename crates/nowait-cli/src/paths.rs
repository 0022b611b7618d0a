//! The files that a command line names: paths, lists of paths, and the regular files below
//! directories. Anything else is reported on standard error, and the other files are still visited.
//!
//! ```text
//!  Paths ─► visit: one file after the other ─────────────────────────────────► each
//!             └─ examine: batches ─► threads: examine(file) ─► in the order of visit ─► take
//! ```

use std::fs::File;
use std::path::Path;

use nowait::walk;
use nowait_page_cache::{FileRef, OpenError, Total, examine, visit};
use rustix::fs::Stat;

use crate::messages::Messages;
use crate::stop::Stop;

mod path_list;

pub use nowait_page_cache::Kinds;
pub use path_list::PathList;

/// The arguments that name files. Verbs that process files share them.
#[derive(Debug, clap::Args)]
#[command(mut_arg("paths", |arg| {
    arg.required_unless_present("files0_from").help(
        "Files and directories. All regular files below a directory are processed. Symbolic links given \
         here are followed, those below a directory are not",
    )
}))]
pub struct Paths {
    #[command(flatten)]
    list: PathList,

    /// Accepted and ignored: directories are always processed
    #[arg(short, long, hide = true)]
    recursive: bool,

    /// Skip directories on other filesystems than their PATH
    #[arg(short = 'x', long)]
    one_file_system: bool,
}

impl Paths {
    /// Returns true if a file with one name could be visited twice.
    pub fn may_overlap(&self) -> bool {
        self.list.may_overlap()
    }

    /// Calls `each` for every given path, until it returns an error or a stop is requested.
    pub fn each<E>(
        &self,
        messages: &Messages,
        stop: &Stop,
        each: impl FnMut(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        self.list.each(messages, stop, each)
    }

    /// Calls `each` for every file, one after the other, until it returns an error or a stop is
    /// requested. Paths are visited in the given order, and the files of a tree in the order of the
    /// walk.
    pub fn visit<E>(
        &self,
        kinds: Kinds,
        messages: &Messages,
        stop: &Stop,
        each: &mut dyn FnMut(FileRef) -> Result<(), E>,
    ) -> Result<(), E> {
        self.each(messages, stop, |path| {
            visit(path, kinds, self.walking(), messages, stop, each)
        })
    }

    /// Opens every file and calls `examine`, on several threads. Calls `take` with each result, on
    /// the calling thread and in the order of [`visit`](Paths::visit), until `take` returns an
    /// error or a stop is requested.
    pub fn examine<T: Send, E>(
        &self,
        kinds: Kinds,
        messages: &Messages,
        stop: &Stop,
        with: impl Fn(File, Stat) -> Result<T, OpenError> + Sync,
        take: impl FnMut(FileRef, Result<T, OpenError>) -> Result<(), E>,
    ) -> Result<(), E> {
        examine(
            |each| self.visit(kinds, messages, stop, each),
            FileRef::look,
            with,
            take,
        )
    }

    /// The total size of the files, which stays unknown for a list of paths: it can be read once.
    pub fn total(&self, kinds: Kinds) -> Total {
        self.list.given().map_or_else(Total::unknown, |paths| {
            Total::of_paths(paths.to_vec(), kinds, self.walking())
        })
    }

    /// The options for walking trees.
    pub fn walking(&self) -> walk::Options {
        walk::Options::new().one_filesystem(self.one_file_system)
    }
}
