//! Surveyed files that are not at their paths: the program has renamed or removed them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nowait_ahead_channel::Missing;

use crate::directory::Id;
use crate::kept_file::{KeptFile, open_path};
use crate::surveyed::Surveyed;

/// The files, by inode number.
#[derive(Default)]
pub struct Renamed(HashMap<u64, Missed>);

struct Missed {
    id: Id,
    path: PathBuf,
    surveyed: Surveyed,
    added: SystemTime,
    /// It was looked for, and not found. An event may still report its name.
    was_sought: bool,
}

/// The maximum number of files. A program may make and remove any number.
const MAX: usize = 10_000;

impl Renamed {
    /// Adds a file that is not at this path.
    pub fn add(&mut self, id: Id, path: PathBuf, surveyed: Surveyed) {
        if self.0.len() >= MAX {
            self.0.retain(|_, file| !file.was_sought);
        }
        if self.0.len() < MAX {
            let missed = Missed {
                id,
                path,
                surveyed,
                added: SystemTime::now(),
                was_sought: false,
            };
            self.0.insert(id.1, missed);
        }
    }

    /// A file has this name, which an event has reported.
    pub fn is_named(&mut self, id: Id, path: PathBuf) {
        if let Some(file) = self.get(id) {
            (file.path, file.was_sought) = (path, false);
        }
    }

    /// Adds a part of a file that was surveyed.
    pub fn survey(&mut self, id: Id, part: Missing<'_>) {
        if let Some(file) = self.get(id) {
            file.surveyed.add(part);
        }
    }

    fn get(&mut self, id: Id) -> Option<&mut Missed> {
        self.0.get_mut(&id.1).filter(|file| file.id == id)
    }

    /// Looks for the files whose paths are new, in the directories of these paths. The path of a file that was made by O_TMPFILE is
    /// that of the directory.
    pub fn find(&mut self) -> Vec<KeptFile> {
        // Another file may have the number of one that was removed.
        let (mut sought, mut directories) = (HashSet::new(), Vec::new());
        for (inode, file) in self.0.iter_mut().filter(|(_, file)| !file.was_sought) {
            file.was_sought = true;
            sought.insert(*inode);
            let path = file.path.as_path();
            directories.extend(
                [Some(path), path.parent()]
                    .into_iter()
                    .flatten()
                    .map(Path::to_owned),
            );
        }
        directories.sort_unstable();
        directories.dedup();
        let mut found = Vec::new();
        for directory in directories {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                if sought.contains(&entry.ino())
                    && let Some(file) = self.0.get(&entry.ino())
                    && let Some(opened) = open_path(&entry.path())
                    && let Some(kept) = KeptFile::new(&opened, file.id, file.surveyed.clone())
                    && kept.is_older_than(file.added)
                {
                    self.0.remove(&entry.ino());
                    found.push(kept);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept_file::id as id_of;
    use crate::ranges::Ranges;

    #[test]
    fn a_file_is_found_by_a_name_that_is_reported_after_it_was_looked_for() {
        // Beside this program, which is on a disk.
        let program = std::env::current_exe().unwrap();
        let directory = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let (before, after) = (
            directory.path().join("a/file"),
            directory.path().join("b/file"),
        );
        for path in [&before, &after] {
            fs::create_dir(path.parent().unwrap()).unwrap();
        }
        fs::write(&after, [7; 5000]).unwrap();
        let id = id_of(&open_path(&after).unwrap()).unwrap();
        let mut renamed = Renamed::default();
        renamed.add(id, before, Surveyed::whole(Ranges::all()));
        assert!(renamed.find().is_empty());
        renamed.is_named(id, after);
        let found = renamed.find();
        assert_eq!(found.iter().map(|file| file.id).collect::<Vec<_>>(), [id]);
        assert!(renamed.find().is_empty() && renamed.0.is_empty());
    }

    /// Its pages may have been resident.
    #[test]
    fn a_later_file_with_the_number_of_a_removed_one_is_not_found() {
        let program = std::env::current_exe().unwrap();
        let directory = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let path = directory.path().join("file");
        fs::write(&path, [7; 5000]).unwrap();
        let id = id_of(&open_path(&path).unwrap()).unwrap();
        let mut renamed = Renamed::default();
        renamed.add(id, path, Surveyed::whole(Ranges::all()));
        if let Some(file) = renamed.get(id) {
            file.added -= std::time::Duration::from_secs(3600);
        }
        assert!(renamed.find().is_empty());
    }
}
