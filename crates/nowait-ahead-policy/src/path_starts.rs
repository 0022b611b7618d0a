//! The beginnings of long paths, which events carry before the event of the path. A program may send any.

use std::collections::HashMap;

use nowait_ahead_channel::Event;

use crate::directory::Id;

/// The beginnings, by the thread that has sent them, and the file or the directory.
#[derive(Default)]
pub struct PathStarts(HashMap<(u32, Id), Vec<u8>>);

/// The maximum number of paths. A thread may end before it completes one.
const MAX: usize = 1024;
/// PATH_MAX: no path of a system call is as long.
pub const LONGEST: usize = 4096;

impl PathStarts {
    /// Adds the part of a path that a [`Kind::Path`](nowait_ahead_channel::Kind::Path) carries.
    pub fn add(&mut self, event: &Event) {
        if self.0.len() >= MAX {
            self.0.clear();
        }
        let start = self.0.entry((event.tid, event.id)).or_default();
        start.truncate(usize::try_from(event.time).unwrap_or(usize::MAX));
        if start.len() < LONGEST {
            start.extend_from_slice(&event.path);
        }
    }

    /// The path of an event. Its beginning is forgotten.
    pub fn complete(&mut self, event: &Event) -> Vec<u8> {
        let start = self.0.remove(&(event.tid, event.id)).unwrap_or_default();
        [start.as_slice(), &event.path].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use nowait_ahead_channel::Kind;

    fn part(tid: u32, offset: u64, path: &[u8]) -> Event {
        Event {
            kind: Kind::Path,
            tid,
            fd: -1,
            id: (1, 2),
            time: offset,
            stats: 0,
            pages: 0,
            path: path.to_vec(),
        }
    }

    #[test]
    fn the_parts_of_a_path_are_joined_for_each_thread() {
        let mut starts = PathStarts::default();
        starts.add(&part(1, 0, b"/one"));
        starts.add(&part(2, 0, b"/other"));
        starts.add(&part(1, 4, b"/two"));
        assert_eq!(starts.complete(&part(1, 0, b"/three")), b"/one/two/three");
        assert_eq!(starts.complete(&part(1, 0, b"/three")), b"/three");
        // The thread has sent another path since.
        starts.add(&part(2, 0, b"/new"));
        assert_eq!(starts.complete(&part(2, 0, b"")), b"/new");
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut starts = PathStarts::default();
        for tid in 0..2 * MAX as u32 {
            for _ in 0..20 {
                starts.add(&part(tid, u64::MAX, &[b'x'; 256]));
            }
        }
        let longest = starts.0.values().map(Vec::len).max();
        assert!(
            starts.0.len() <= MAX && longest < Some(2 * LONGEST),
            "{longest:?}"
        );
    }
}
