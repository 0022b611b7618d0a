//! Surveyed files that are not at their paths: the program has renamed or removed them, or a directory above.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

use nowait_ahead_channel::Missing;

use crate::directory::Id;
use crate::surveyed::{Surveyed, share};
use crate::surveyed_file::{SurveyedFile, open_path};

/// The files, and the new paths of directories.
#[derive(Default)]
pub struct Renamed {
    /// By inode number.
    files: HashMap<u64, Missed>,
    directories: VecDeque<PathBuf>,
}

struct Missed {
    id: Id,
    /// Its birth, or 0.
    birth: u32,
    path: PathBuf,
    surveyed: Surveyed,
    /// It was looked for, and not found. An event may still report its name.
    was_sought: bool,
}

/// The maximum number of files. A program may make and remove any number.
const MAX: usize = 10_000;
/// The maximum number of directories.
const MAX_DIRECTORIES: usize = 16;

impl Renamed {
    /// Adds a file with this ID and [birth](nowait_ahead_channel::birth), or 0, that is not at this path.
    pub fn add(&mut self, (id, birth): (Id, u32), path: PathBuf, surveyed: Surveyed) {
        if self.files.len() >= MAX {
            self.files.retain(|_, file| !file.was_sought);
        }
        if self.files.len() < MAX {
            let missed = Missed {
                id,
                birth,
                path,
                surveyed,
                was_sought: false,
            };
            self.files.insert(id.1, missed);
        }
    }

    /// A file has this name, which an event has reported.
    pub fn is_named(&mut self, id: Id, path: PathBuf) {
        if let Some(file) = self.get(id) {
            (file.path, file.was_sought) = (path, false);
        }
    }

    /// A directory has this path, which an event has reported. If it `is_there` no more, it may be below one that is reported next.
    pub fn directory_is_named(&mut self, path: PathBuf, is_there: bool) {
        // Others may be below it, and have other paths now.
        let renamed = VecDeque::from([path]);
        let others = self.directories.iter();
        let moved = others.flat_map(|other| new_paths(&renamed, other));
        let moved: Vec<PathBuf> = moved.filter(|path| path.is_dir()).collect();
        self.directories.extend(moved.into_iter().chain(renamed));
        let excess = self.directories.len().saturating_sub(MAX_DIRECTORIES);
        self.directories.drain(..excess);
        // Some may be below it.
        if is_there {
            let files = self.files.values_mut();
            files.for_each(|file| file.was_sought = false);
        }
    }

    /// Adds a part of a file that was surveyed.
    pub fn survey(&mut self, id: Id, part: Missing<'_>) {
        let max = share(self.files.len());
        if let Some(file) = self.get(id) {
            file.surveyed.add(part, max);
        }
    }

    fn get(&mut self, id: Id) -> Option<&mut Missed> {
        self.files.get_mut(&id.1).filter(|file| file.id == id)
    }

    /// Looks for the files whose paths are new, in the directories of these paths, and in directories that were renamed. The path of
    /// a file that was made by O_TMPFILE is that of the directory. Returns the files that were found, and the IDs of the others.
    pub fn find(&mut self) -> (Vec<SurveyedFile>, Vec<Id>) {
        let (mut sought, mut directories) = (HashSet::new(), Vec::new());
        let mut found = Vec::new();
        for (inode, file) in self.files.iter_mut().filter(|(_, file)| !file.was_sought) {
            file.was_sought = true;
            sought.insert(*inode);
            let path = file.path.as_path();
            let new = new_paths(&self.directories, path);
            if let Some(kept) = new.into_iter().find_map(|path| file.at(&path)) {
                found.push(kept);
                continue;
            }
            let parents = [Some(path), path.parent()].into_iter().flatten();
            directories.extend(parents.map(Path::to_owned));
        }
        directories.sort_unstable();
        directories.dedup();
        for directory in directories {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                if sought.contains(&entry.ino())
                    && let Some(file) = self.files.get(&entry.ino())
                    && let Some(kept) = file.at(&entry.path())
                {
                    found.push(kept);
                }
            }
        }
        for file in &found {
            sought.remove(&file.id.1);
            self.files.remove(&file.id.1);
        }
        let lost = sought
            .into_iter()
            .filter_map(|inode| self.files.get(&inode));
        let lost = lost.map(|file| file.id).collect();
        (found, lost)
    }
}

impl Missed {
    /// The file, if it is at a path. Another file may have the number of one that was removed: without a birth time, it is not
    /// known to be the same.
    fn at(&self, path: &Path) -> Option<SurveyedFile> {
        if self.birth == 0 {
            return None;
        }
        let identity = (self.id, self.birth);
        SurveyedFile::new(&open_path(path)?, identity, self.surveyed.clone())
    }
}

/// The paths that a file may have if a directory above it has one of these paths now.
fn new_paths(directories: &VecDeque<PathBuf>, path: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let names: Vec<&OsStr> = path.iter().collect();
    for directory in directories.iter().rev() {
        for first in 1..names.len() {
            let below: PathBuf = names[first..].iter().collect();
            paths.push(directory.join(below));
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surveyed_file::look;
    use nowait_residency::ranges::Ranges;

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
        let ((id, birth), _) = look(&after).unwrap();
        let mut renamed = Renamed::default();
        renamed.add((id, birth), before, Surveyed::whole(Ranges::all()));
        let (found, lost) = renamed.find();
        assert!(found.is_empty());
        assert_eq!(lost, [id]);
        renamed.is_named(id, after);
        let (found, lost) = renamed.find();
        assert_eq!(found.iter().map(|file| file.id).collect::<Vec<_>>(), [id]);
        assert!(lost.is_empty() && renamed.files.is_empty());
    }

    /// Its pages may have been resident.
    #[test]
    fn a_later_file_with_the_number_of_a_removed_one_is_not_found() {
        let program = std::env::current_exe().unwrap();
        let directory = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let path = directory.path().join("file");
        fs::write(&path, [7; 5000]).unwrap();
        let ((id, birth), _) = look(&path).unwrap();
        for (birth, found) in [(0, 0), (birth ^ 1, 0), (birth, 1)] {
            let mut renamed = Renamed::default();
            let surveyed = Surveyed::whole(Ranges::all());
            renamed.add((id, birth), path.clone(), surveyed);
            assert_eq!(renamed.find().0.len(), found);
        }
    }

    #[test]
    fn a_file_below_a_renamed_directory_is_found() {
        let program = std::env::current_exe().unwrap();
        let directory = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let at = |path: &str| directory.path().join(path);
        fs::create_dir_all(at("new/below")).unwrap();
        fs::write(at("new/below/file"), [7; 5000]).unwrap();
        let (identity, _) = look(&at("new/below/file")).unwrap();
        let mut renamed = Renamed::default();
        renamed.directory_is_named(at("new"), true);
        renamed.directory_is_named(at("other"), false);
        let surveyed = Surveyed::whole(Ranges::all());
        renamed.add(identity, at("old/below/file"), surveyed);
        assert_eq!(renamed.find().0.len(), 1);
    }
}
