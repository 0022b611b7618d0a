//! The threads of a program: if they have slept, and if they have read from a disk. See proc(5).

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The threads of a program, by thread ID.
#[derive(Debug, Default)]
pub struct Threads(HashMap<u32, Thread>);

#[derive(Debug)]
struct Thread {
    sleeps: Count,
    reads: Count,
}

/// A number in a file of proc(5), and its last value.
#[derive(Debug)]
struct Count {
    file: Option<File>,
    name: &'static str,
    before: Option<u64>,
}

/// The maximum number of threads. Two files of each are open.
const MAX_THREADS: usize = 8;

impl Threads {
    /// Returns true if a thread has slept since the last call: for the disk, for a server, or
    /// elsewhere in the program.
    pub fn has_slept(&mut self, thread: u32) -> bool {
        self.thread(thread).sleeps.has_changed()
    }

    /// Returns true if the process of a thread has read names, inodes or data from a disk since the
    /// last call.
    pub fn has_read(&mut self, thread: u32) -> bool {
        self.thread(thread).reads.has_changed()
    }

    fn thread(&mut self, thread: u32) -> &mut Thread {
        if self.0.len() >= MAX_THREADS && !self.0.contains_key(&thread) {
            self.0.clear();
        }
        self.0.entry(thread).or_insert_with(|| Thread {
            sleeps: Count::new(thread, "status", "voluntary_ctxt_switches:"),
            reads: Count::new(thread, "io", "read_bytes:"),
        })
    }
}

impl Count {
    fn new(thread: u32, file: &str, name: &'static str) -> Count {
        let file = File::open(format!("/proc/{thread}/{file}")).ok();
        let before = None;
        Count { file, name, before }
    }

    /// Returns true if the number has changed since the last call, or is not 0 at the first one.
    /// Returns false if it cannot be read: the thread has ended, or the user may not read it.
    fn has_changed(&mut self) -> bool {
        let Some(now) = self.read() else {
            return false;
        };
        self.before.replace(now).unwrap_or_default() != now
    }

    fn read(&self) -> Option<u64> {
        let mut bytes = [0; 4096];
        let len = self.file.as_ref()?.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(&bytes[..len]).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(self.name))?;
        value.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_thread_that_has_slept_is_known() {
        let mut threads = Threads::default();
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(1));
            assert!(threads.has_slept(thread));
        }
        // The thread may wait for a lock of the kernel meanwhile.
        assert!((0..100).any(|_| !threads.has_slept(thread)));
    }

    #[test]
    fn a_process_that_has_read_is_known() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("file");
        let mut threads = Threads::default();
        let process = std::process::id();
        for n in 0..2 {
            std::fs::write(&path, vec![n; 1 << 20]).unwrap();
            let file = File::open(&path).unwrap();
            slowdisk::evict(&file).unwrap();
            threads.has_read(process);
            file.read_at(&mut [0; 4096], 0).unwrap();
            assert!(threads.has_read(process));
        }
    }

    #[test]
    fn nothing_is_known_of_a_thread_that_is_not_there() {
        let mut threads = Threads::default();
        assert!(!threads.has_slept(u32::MAX));
        assert!(!threads.has_read(0));
        for thread in 1..100 {
            threads.has_read(thread);
            assert!(threads.0.len() <= MAX_THREADS);
        }
    }
}
