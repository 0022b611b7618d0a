//! A file that becomes longer while it is read as a whole.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The number of reads.
const TIMES: usize = 20_000;

/// Reads a file below `dir` again and again, while another thread writes a longer text over the text of the file, by one call.
/// On xfs, whose reads and writes exclude each other, a read to the end of the file never returns a part of the longer text
/// alone. `read` returns the whole file, or `None`.
pub fn check(dir: &Path, mut read: impl FnMut(&Path) -> Option<Vec<u8>>) {
    const TEXTS: [&[u8]; 2] = [b"aaaa", b"bbbbbbbb"];
    let (path, new) = (dir.join("growing"), dir.join("new"));
    fs::write(&path, TEXTS[0]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                fs::write(&new, TEXTS[0]).unwrap();
                let file = fs::File::options().write(true).open(&new).unwrap();
                fs::rename(&new, &path).unwrap();
                file.write_all_at(TEXTS[1], 0).unwrap();
            }
        });
        let _end = End(&done);
        for _ in 0..TIMES {
            if let Some(bytes) = read(&path) {
                let is_part = bytes.len() < TEXTS[1].len() && bytes != TEXTS[0];
                assert!(!is_part, "{:?}", bytes.escape_ascii().to_string());
            }
        }
    });
}

/// Ends the other thread, also if the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
