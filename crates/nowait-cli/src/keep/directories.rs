//! The directories of a path, as a tree. A directory has its name and its parent, and not its path,
//! which can be as long as the tree is deep: memory and time are proportional to the number of
//! directories.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

use super::directory::{Below, Directory, Location, Number};
use super::entry::Entry;

/// The place of a directory in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// That of the path.
    Top,
    /// A name in another directory.
    In(Number, OsString),
}

/// Directories in the order of their paths.
#[derive(Debug, Default)]
pub struct Directories {
    known: HashMap<Number, Box<Directory>>,
    top: Option<Number>,
    /// The number of the next directory. No number is used again.
    next: Number,
}

impl Directories {
    pub fn is_empty(&self) -> bool {
        self.top.is_none()
    }

    pub fn get(&self, number: Number) -> Option<&Directory> {
        self.known.get(&number).map(|directory| &**directory)
    }

    pub fn get_mut(&mut self, number: Number) -> Option<&mut Directory> {
        self.known
            .get_mut(&number)
            .map(|directory| &mut **directory)
    }

    /// All directories in any order.
    pub fn values(&self) -> impl Iterator<Item = &Directory> {
        self.known.values().map(|directory| &**directory)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Directory> {
        self.known.values_mut().map(|directory| &mut **directory)
    }

    /// The directory at a place.
    pub fn at(&self, place: &Place) -> Option<Number> {
        match place {
            Place::Top => self.top,
            Place::In(parent, name) => self.get(*parent)?.below(name)?.number,
        }
    }

    /// The places of the directories in a directory.
    pub fn places_in(&self, number: Number) -> impl Iterator<Item = Place> {
        let below = self.get(number).into_iter().flat_map(|it| &it.below);
        below.map(move |below| Place::In(number, below.name.clone()))
    }

    /// Adds an empty directory at a place where none is. `None` if the parent is gone.
    pub fn add(&mut self, place: &Place, mut directory: Box<Directory>) -> Option<Number> {
        let number = self.next;
        match place {
            Place::Top => self.top = Some(number),
            Place::In(parent, name) => {
                let parent_directory = self.get_mut(*parent)?;
                match parent_directory.find(name) {
                    Ok(at) => parent_directory.below[at].number = Some(number),
                    Err(at) => parent_directory.below.insert(
                        at,
                        Below {
                            name: name.clone(),
                            number: Some(number),
                        },
                    ),
                }
                directory.parent = Some(*parent);
            }
        }
        directory.location.number = number;
        self.next += 1;
        self.known.insert(number, directory);
        Some(number)
    }

    /// Removes a directory and those below it. Its name stays in its parent.
    pub fn remove(&mut self, number: Number) -> Vec<Directory> {
        if self.top == Some(number) {
            self.top = None;
        }
        let directory = self.get(number);
        let parent = directory.and_then(|directory| directory.parent);
        let dir = directory.and_then(|directory| directory.location.dir.clone());
        if let (Some(parent), Some(dir)) = (parent.and_then(|it| self.get_mut(it)), dir)
            && let Ok(at) = parent.find(dir.name())
        {
            parent.below[at].number = None;
        }
        let mut removed = Vec::new();
        let mut rest = vec![number];
        while let Some(number) = rest.pop() {
            if let Some(directory) = self.known.remove(&number) {
                rest.extend(directory.below.iter().filter_map(|below| below.number));
                removed.push(*directory);
            }
        }
        removed
    }

    /// Removes all directories.
    pub fn clear(&mut self) -> impl Iterator<Item = Directory> {
        self.top = None;
        let known = std::mem::take(&mut self.known);
        known.into_values().map(|directory| *directory)
    }

    /// A directory and those below it, in order.
    pub fn below(&self, number: Number) -> impl Iterator<Item = &Directory> {
        self.from(self.get(number), Some(number))
    }

    /// All directories in order.
    pub fn in_order(&self) -> impl Iterator<Item = &Directory> {
        self.from(self.top.and_then(|top| self.get(top)), self.top)
    }

    /// The files that follow a file in order, with their directories. The file and its directory may
    /// be gone.
    pub fn files_after<'a>(
        &'a self,
        location: &Location,
        name: &'a OsStr,
    ) -> impl Iterator<Item = (&'a Location, &'a OsString)> {
        let (directory, next) = self.find(location);
        let after = (std::ops::Bound::Excluded(name), std::ops::Bound::Unbounded);
        let files = directory.into_iter().flat_map(move |directory| {
            let files = directory.files.range::<OsStr, _>(after);
            files.map(|(name, _)| (&directory.location, name))
        });
        let rest = self.from(next, self.top);
        files.chain(rest.flat_map(|directory| {
            let names = directory.files.keys();
            names.map(|name| (&directory.location, name))
        }))
    }

    /// The directory at a location, and the one after it in order. If it is gone: the one that has
    /// taken its place, or `None` and the one after the place.
    fn find(&self, location: &Location) -> (Option<&Directory>, Option<&Directory>) {
        if let Some(directory) = self.get(location.number) {
            return (Some(directory), self.next(directory, self.top));
        }
        let Some(mut at) = self.top.and_then(|top| self.get(top)) else {
            return (None, None);
        };
        let ancestors = std::iter::successors(location.dir.as_ref(), |dir| dir.parent());
        let mut way: Vec<&OsStr> = ancestors.map(|dir| dir.name()).collect();
        // The top has no name.
        way.pop();
        for name in way.into_iter().rev() {
            let below = at.below(name).and_then(|below| below.number);
            match below.and_then(|number| self.get(number)) {
                Some(below) => at = below,
                None => {
                    let next = self.first_in(at, Some(name));
                    return (None, next.or_else(|| self.behind(at, self.top)));
                }
            }
        }
        (Some(at), self.next(at, self.top))
    }

    fn from<'a>(
        &'a self,
        first: Option<&'a Directory>,
        within: Option<Number>,
    ) -> impl Iterator<Item = &'a Directory> {
        std::iter::successors(first, move |directory| self.next(directory, within))
    }

    /// The directory that follows one in order, within a tree.
    fn next<'a>(
        &'a self,
        directory: &'a Directory,
        within: Option<Number>,
    ) -> Option<&'a Directory> {
        let first = self.first_in(directory, None);
        first.or_else(|| self.behind(directory, within))
    }

    /// The first directory in a directory after a name.
    fn first_in(&self, directory: &Directory, after: Option<&OsStr>) -> Option<&Directory> {
        let first = after.map_or(0, |name| match directory.find(name) {
            Ok(at) => at + 1,
            Err(at) => at,
        });
        let mut numbers = directory.below[first..].iter();
        self.get(numbers.find_map(|below| below.number)?)
    }

    /// The directory after those below a directory.
    fn behind<'a>(
        &'a self,
        directory: &'a Directory,
        within: Option<Number>,
    ) -> Option<&'a Directory> {
        let mut at = directory;
        while Some(at.location.number) != within {
            let parent = self.get(at.parent?)?;
            let name = at.location.dir.as_ref()?.name();
            if let Some(next) = self.first_in(parent, Some(name)) {
                return Some(next);
            }
            at = parent;
        }
        None
    }

    /// Calls `each` with every file, in order.
    pub fn for_each_file(&mut self, mut each: impl FnMut(&Location, &OsString, &mut Entry)) {
        let order: Vec<Number> = self.in_order().map(|it| it.location.number).collect();
        for number in order {
            let Some(Directory {
                location, files, ..
            }) = self.get_mut(number)
            else {
                continue;
            };
            for (name, entry) in files {
                each(location, name, entry);
            }
        }
    }
}
