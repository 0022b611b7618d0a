//! The place of a file that is to be examined, read or locked.

use std::ffi::{OsStr, OsString};

use super::directory::Location;

/// A file of a path.
#[derive(Clone, Debug)]
pub struct Target {
    /// The number of the path.
    pub root: usize,
    pub directory: Location,
    pub name: OsString,
    /// The bytes before this offset were read or locked already.
    pub from: u64,
}

impl Target {
    /// A file of which nothing was read.
    pub fn new(root: usize, directory: &Location, name: &OsStr) -> Target {
        Target {
            root,
            directory: directory.clone(),
            name: name.to_owned(),
            from: 0,
        }
    }
}
