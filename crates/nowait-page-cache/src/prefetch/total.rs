//! The number of bytes that a run is requested to read, for its progress.
//!
//! ```text
//!  run:            ── 1 s ──► begins to count ──► total? ──► total? ──► ends ─► stop
//!  another thread:                  └─ visit: statx(2) of all files ─► total
//! ```
//! The sizes of the files of a tree are counted by a second walk. Its thread may wait for a device
//! that does not answer. The run never waits for the thread.

use std::fmt::Display;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use nowait::{StatxMask, walk};
use rustix::io::Errno;

use crate::reporter::Reporter;
use crate::seen_inodes::SeenInodes;
use crate::stop::Stop;
use crate::visit::{Given, Kinds, given, tree};

/// The time of the run after which counting begins. Most runs have ended by then.
const BEGIN: Duration = Duration::from_secs(1);

/// The descriptors and workers of the walk. The run itself needs the others.
const DESCRIPTORS: usize = 8;
const WORKERS: usize = 1;

/// The total of a run. Dropping it ends the thread that counts, without waiting for it.
#[derive(Debug)]
pub struct Total(State);

#[derive(Debug)]
enum State {
    Unknown,
    Known(u64),
    /// Counting has not begun.
    Paths {
        paths: Vec<PathBuf>,
        kinds: Kinds,
        walking: walk::Options,
    },
    Counting {
        total: Arc<OnceLock<u64>>,
        stop: Stop,
    },
}

impl Total {
    /// A total that stays unknown.
    pub fn unknown() -> Total {
        Total(State::Unknown)
    }

    /// A total that is known.
    pub fn known(bytes: u64) -> Total {
        Total(State::Known(bytes))
    }

    /// The sizes of the files that [`visit`](crate::visit) finds with the same arguments. A file
    /// with several names counts once. They are counted if the run takes longer than a second.
    pub fn of_paths(paths: Vec<PathBuf>, kinds: Kinds, walking: walk::Options) -> Total {
        Total(State::Paths {
            paths,
            kinds,
            walking,
        })
    }

    /// The total, if it is known at this time of the run.
    pub(super) fn get(&mut self, elapsed: Duration) -> Option<u64> {
        match &mut self.0 {
            State::Unknown => None,
            State::Known(bytes) => Some(*bytes),
            State::Counting { total, .. } => total.get().copied(),
            State::Paths { .. } if elapsed < BEGIN => None,
            State::Paths {
                paths,
                kinds,
                walking,
            } => {
                let paths = std::mem::take(paths);
                self.0 = count_in_thread(paths, *kinds, walking.clone());
                None
            }
        }
    }
}

impl Drop for Total {
    fn drop(&mut self) {
        if let State::Counting { stop, .. } = &self.0 {
            stop.request();
        }
    }
}

/// Begins to count. Without another thread the total stays unknown.
fn count_in_thread(paths: Vec<PathBuf>, kinds: Kinds, walking: walk::Options) -> State {
    let (total, stop) = (Arc::<OnceLock<u64>>::default(), Stop::default());
    let (its, asked) = (total.clone(), stop.clone());
    let work = move || {
        if let Some(bytes) = count(&paths, kinds, walking, &asked) {
            // This thread alone sets it.
            let _ = its.set(bytes);
        }
    };
    match thread::Builder::new().name("sizes".into()).spawn(work) {
        Ok(_) => State::Counting { total, stop },
        Err(_) => State::Unknown,
    }
}

/// The sizes of all files. `None` after a stop request, and if files could not be found for lack of
/// descriptors, memory or threads.
fn count(paths: &[PathBuf], kinds: Kinds, walking: walk::Options, stop: &Stop) -> Option<u64> {
    let walking = walking
        .metadata(StatxMask::TYPE | StatxMask::INO | StatxMask::NLINK | StatxMask::SIZE)
        .dont_sync(true)
        .descriptors(DESCRIPTORS)
        .workers(WORKERS);
    let mut seen = SeenInodes::new(paths.len() > 1);
    let shortage = Shortage::default();
    let mut sum = 0u64;
    for path in paths {
        match given(path, kinds, &shortage) {
            None => {}
            Some(Given::File(_)) => {
                if let Ok(stat) = rustix::fs::stat(path)
                    && seen.insert(&stat)
                {
                    sum = sum.saturating_add(stat.st_size as u64);
                }
            }
            Some(Given::Directory) => {
                let Ok(()) = tree(path, walking.clone(), &shortage, stop, |_, entry| {
                    // Files that were removed meanwhile have no metadata.
                    if let Some(Ok(metadata)) = entry.metadata()
                        && seen.insert_inode(metadata.dev(), metadata.ino(), metadata.nlink())
                    {
                        sum = sum.saturating_add(metadata.len());
                    }
                    Ok::<(), std::convert::Infallible>(())
                });
            }
        }
        if stop.asked() || shortage.0.load(Ordering::Relaxed) {
            return None;
        }
    }
    Some(sum)
}

/// True if something was not found for lack of descriptors, memory or threads. Other failures are those of the
/// run, too, which reports them.
#[derive(Default)]
struct Shortage(AtomicBool);

impl Reporter for Shortage {
    fn failure(&self, _: &Path, errno: Option<Errno>, _: &dyn Display) {
        if matches!(
            errno,
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN)
        ) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn note(&self, _: &Path, _: &dyn Display) {}
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Instant;

    use super::*;

    /// A tree with files of 1, 20 and 300 bytes. The last one has two names.
    fn made() -> tempfile::TempDir {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("tree/deep")).unwrap();
        fs::write(at("tree/a"), "a").unwrap();
        fs::write(at("tree/deep/b"), [7; 20]).unwrap();
        fs::write(at("tree/deep/c"), [7; 300]).unwrap();
        fs::hard_link(at("tree/deep/c"), at("tree/d")).unwrap();
        fs::write(at("outside"), [7; 4000]).unwrap();
        symlink(at("outside"), at("tree/link")).unwrap();
        dir
    }

    fn sum(paths: &[PathBuf]) -> Option<u64> {
        let walking = walk::Options::new();
        count(paths, Kinds::Regular, walking, &Stop::default())
    }

    #[test]
    fn files_count_once_and_links_below_a_directory_do_not() {
        let dir = made();
        let at = |name: &str| dir.path().join(name);
        assert_eq!(sum(&[at("tree")]), Some(321));
        assert_eq!(sum(&[at("tree/link")]), Some(4000));
        assert_eq!(sum(&[at("outside"), at("tree/link")]), Some(4000));
        let overlapping = [at("tree/deep"), at("tree"), at("tree/a"), at("missing")];
        assert_eq!(sum(&overlapping), Some(321));
        assert_eq!(sum(&[]), Some(0));
    }

    #[test]
    fn counting_begins_after_a_second_and_ends_with_the_run() {
        let dir = made();
        let paths = vec![dir.path().join("tree")];
        let mut total = Total::of_paths(paths.clone(), Kinds::Regular, walk::Options::new());
        assert_eq!(total.get(BEGIN / 2), None);
        assert!(matches!(total.0, State::Paths { .. }));
        let begun = Instant::now();
        while total.get(BEGIN).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(100), "it hangs");
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(total.get(BEGIN), Some(321));
        let State::Counting { stop, .. } = &total.0 else {
            panic!("{total:?}");
        };
        let stop = stop.clone();
        drop(total);
        assert!(stop.asked());
        let stopped = count(&paths, Kinds::Regular, walk::Options::new(), &stop);
        assert_eq!(stopped, None);
    }

    #[test]
    fn a_shortage_leaves_the_total_unknown() {
        let shortage = Shortage::default();
        let failed = |errno| shortage.failure(Path::new(""), Some(errno), &"");
        failed(Errno::ACCESS);
        assert!(!shortage.0.load(Ordering::Relaxed));
        failed(Errno::MFILE);
        assert!(shortage.0.load(Ordering::Relaxed));
    }
}
