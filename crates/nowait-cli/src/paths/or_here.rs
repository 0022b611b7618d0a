//! The paths of a verb that processes the working directory if none is given.

use std::path::{Path, PathBuf};

use crate::messages::Messages;
use crate::stop::Stop;

use super::name_list;

/// The arguments that name directories and files.
#[derive(Debug, clap::Args)]
pub struct PathsOrHere {
    /// Directories and other files
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,

    /// Read the paths from FILE, each terminated by a NUL byte, as `find -print0` writes them. `-` is
    /// standard input
    #[arg(long, value_name = "FILE", conflicts_with = "paths")]
    files0_from: Option<PathBuf>,
}

impl PathsOrHere {
    /// Returns true if a file with one name could be found twice.
    pub fn may_overlap(&self) -> bool {
        self.files0_from.is_some() || self.paths.len() > 1
    }

    /// Calls `each` for every path, in the given order, until it returns an error or a stop is requested.
    pub fn each<E>(
        &self,
        messages: &Messages,
        stop: &Stop,
        mut each: impl FnMut(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut each = |path: &Path| match stop.asked() {
            true => Ok(()),
            false => each(path),
        };
        match &self.files0_from {
            None => self.paths.iter().try_for_each(|path| each(path)),
            Some(list) => name_list::read(list, messages, each),
        }
    }
}
