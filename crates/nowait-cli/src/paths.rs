//! The files that a command line names: paths, lists of paths, and the regular files below
//! directories. Anything else is reported on standard error, and the other files are still visited.
//!
//! ```text
//!  Paths ─► visit: one file after the other ─────────────────────────────────► each
//!             └─ examine: batches ─► threads: examine(file) ─► in the order of visit ─► take
//! ```
//! The library walks trees. Memory does not grow with the number of files: it holds a
//! bounded number of entries and batches, and the directories that are not yet open.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nowait::scan::DirEntry;
use nowait::{FileType, walk};
use rustix::fs::{AtFlags, CWD};

use crate::batches::Batches;
use crate::messages::Messages;
use crate::stop::Stop;

mod file_ref;
mod parallel;
mod path_list;
mod pseudo;

pub use file_ref::{FileRef, OpenError};

use file_ref::{TreeRoot, failed};
pub use path_list::PathList;
pub use pseudo::PseudoMounts;

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

/// The types of given files that a verb processes. Trees have regular files only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    Regular,
    RegularAndBlockDevices,
}

/// The file or directory at a given path.
pub enum Given<'a> {
    File(FileRef),
    Directory(&'a Path),
}

impl Paths {
    /// Returns true if a file with one name could be visited twice.
    pub fn may_overlap(&self) -> bool {
        self.list.may_overlap()
    }

    /// Calls `each` for every file, one after the other, until it returns an error or a stop is
    /// requested. Paths are visited in the given order, and the files of a tree in the order of the
    /// walk.
    pub fn visit<E>(
        &self,
        kinds: Kinds,
        messages: &Messages,
        stop: &Stop,
        mut each: impl FnMut(FileRef) -> Result<(), E>,
    ) -> Result<(), E> {
        self.given(kinds, messages, stop, |given| match given {
            Given::File(found) => each(found),
            Given::Directory(root) => self.tree(root, messages, stop, &mut each),
        })
    }

    /// Calls `each` for every given path, until a stop is requested.
    pub fn given<E>(
        &self,
        kinds: Kinds,
        messages: &Messages,
        stop: &Stop,
        mut each: impl FnMut(Given<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.list.each(messages, stop, |path| {
            self.visit_path(path, kinds, messages, &mut each)
        })
    }

    /// The options for walking trees.
    pub fn walking(&self) -> walk::Options {
        walk::Options::new().one_filesystem(self.one_file_system)
    }

    /// Visits one given path.
    fn visit_path<E>(
        &self,
        path: &Path,
        kinds: Kinds,
        messages: &Messages,
        each: &mut impl FnMut(Given<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let stat = match std::fs::metadata(path) {
            Ok(stat) => stat,
            Err(e) => {
                messages.failure(path, e);
                return Ok(());
            }
        };
        let kind = stat.file_type();
        let is_wanted_device = kinds == Kinds::RegularAndBlockDevices && kind.is_block_device();
        if kind.is_file() || is_wanted_device {
            let kind = rustix::fs::FileType::from_raw_mode(stat.mode());
            let found = FileRef::given(path.to_path_buf(), stat.ino(), kind);
            return each(Given::File(found));
        }
        if kind.is_dir() {
            return each(Given::Directory(path));
        }
        let what = if kind.is_fifo() {
            "is a FIFO, not a regular file"
        } else if kind.is_socket() {
            "is a socket, not a regular file"
        } else {
            "is a device, not a regular file"
        };
        messages.failure(path, what);
        Ok(())
    }

    /// Visits all regular files below a directory.
    fn tree<E>(
        &self,
        root: &Path,
        messages: &Messages,
        stop: &Stop,
        each: &mut impl FnMut(FileRef) -> Result<(), E>,
    ) -> Result<(), E> {
        let pseudo = PseudoMounts::below(root);
        let options = pseudo.skipped_by(self.walking());
        let Some(mut batches) = Batches::open(root, &options, messages, stop) else {
            return Ok(());
        };
        // The root stays open during the walk.
        let (tree, _open) = match TreeRoot::open(root) {
            Ok(opened) => opened,
            Err(why) => {
                failed(messages, root, true, why.into());
                return Ok(());
            }
        };
        while let Some(found) = batches.next() {
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    messages.error(root, false, &error);
                    continue;
                }
            };
            for entry in found.iter() {
                if stop.asked() {
                    return Ok(());
                }
                let path = entry.path();
                // Links are not followed here. Other types of files are skipped without a message.
                if kind(&entry, &path, messages) == FileType::File {
                    each(FileRef::in_tree(&tree, path, entry.ino()))?;
                }
            }
        }
        pseudo.report(messages);
        Ok(())
    }
}

/// The type of an entry. It is queried where the filesystem does not list it.
fn kind(entry: &DirEntry, path: &Path, messages: &Messages) -> FileType {
    match entry.file_type() {
        FileType::Unknown => match rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => rustix::fs::FileType::from_raw_mode(stat.st_mode).into(),
            Err(why) => {
                failed(messages, path, false, why.into());
                FileType::Unknown
            }
        },
        kind => kind,
    }
}
