//! Tests that the machine may disturb. They are repeated only if the disturbance is proven.
#![allow(unsafe_code)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::pages;

/// A test that was disturbed this often fails: the machine is not fit for it.
const MAX_TRIES: usize = 1000;

/// A disturbance that makes a try of a test fail, although nothing is wrong.
#[derive(Clone, Copy)]
pub enum Excuse<'a> {
    /// The kernel has reclaimed pages of these files. Some machines do that without a shortage of memory (DAMON).
    Reclaimed(&'a [&'a Path]),
    /// Another thread has taken the processor from the calling one, or another machine has. It then looks as if the
    /// calling thread had waited for a device.
    Preempted,
    /// The same of any thread of this process.
    AnyPreempted,
    /// The same of child processes that have ended.
    ChildPreempted,
    /// The kernel has reclaimed pages of any files.
    AnyReclaimed,
    /// Threads have waited for a processor for as long as this, in sum.
    Busy(Duration),
    /// The try has taken so long: what gives up after that time may have done so.
    Took(Duration),
    /// Other disturbances: a function that proves them after the try.
    Other(&'a dyn Fn() -> Option<String>),
}

/// The disturbances of the machine so far.
pub struct Watch {
    began: Instant,
    thread: i64,
    process: i64,
    children: i64,
    stolen: u64,
    waited: Duration,
    reclaimed: u64,
}

impl Watch {
    /// Begins to watch.
    #[expect(
        clippy::new_without_default,
        reason = "it reads the state of the machine"
    )]
    pub fn new() -> Watch {
        Watch {
            began: Instant::now(),
            thread: preemptions(libc::RUSAGE_THREAD),
            process: preemptions(libc::RUSAGE_SELF),
            children: preemptions(libc::RUSAGE_CHILDREN),
            stolen: stolen(),
            waited: waited(),
            // DAMON need not be asked at each beginning. A page that it has reclaimed shortly before may then excuse the first
            // try. The proof asks DAMON, so that the next try is watched from there.
            reclaimed: pages::reclaimed_at_least(),
        }
    }

    /// The proof that one of the disturbances has happened since. `None` if there is none.
    pub fn proof(&self, excuses: &[Excuse<'_>]) -> Option<String> {
        let now = Watch::new();
        let reclaimed = || pages::all_reclaimed() - self.reclaimed;
        let preempted = |times: i64| {
            let times = times + (now.stolen - self.stolen) as i64;
            (times > 0).then(|| format!("preempted {times} times"))
        };
        excuses.iter().find_map(|excuse| match excuse {
            Excuse::Reclaimed(paths) => paths.iter().find_map(|path| {
                let missing = pages::resident(path).iter().filter(|page| !**page).count();
                // Before Linux 6.5 the kernel counts the reclaimed pages of all files only.
                let reclaimed = match pages::reclaimed(path) {
                    Some(count) => count,
                    None => reclaimed(),
                };
                let text = || format!("{reclaimed} pages were reclaimed, {}", path.display());
                (missing > 0 && reclaimed > 0).then(text)
            }),
            Excuse::Preempted => preempted(now.thread - self.thread),
            Excuse::AnyPreempted => preempted(now.process - self.process),
            Excuse::ChildPreempted => preempted(now.children - self.children),
            Excuse::AnyReclaimed => {
                let reclaimed = reclaimed();
                (reclaimed > 0).then(|| format!("{reclaimed} pages were reclaimed"))
            }
            Excuse::Busy(least) => {
                let waited = now.waited - self.waited;
                (waited >= *least).then(|| format!("threads waited {waited:?} for a processor"))
            }
            Excuse::Took(least) => {
                let took = self.began.elapsed();
                (took >= *least).then(|| format!("it took {took:?}"))
            }
            Excuse::Other(proof) => proof(),
        })
    }
}

/// The number of times that threads have lost their processor: getrusage(2), involuntary context switches.
fn preemptions(whose: libc::c_int) -> i64 {
    // SAFETY: a struct of numbers, which the call fills.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(whose, &mut usage), 0);
        usage.ru_nivcsw
    }
}

/// The time that other virtual machines have taken, in clock ticks: proc_stat(5).
fn stolen() -> u64 {
    let stat = fs::read_to_string("/proc/stat").expect("/proc/stat");
    let mut words = stat.lines().next().unwrap_or("").split_whitespace();
    words.nth(8).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// The time in which at least one thread waited for a processor. Zero on kernels without it: CONFIG_PSI.
fn waited() -> Duration {
    let pressure = fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let total = pressure
        .lines()
        .next()
        .and_then(|line| line.split("total=").nth(1));
    Duration::from_micros(total.and_then(|total| total.parse().ok()).unwrap_or(0))
}

/// Runs a test that reports its failure as an error. A failed try is repeated if one of the excuses is proven, and
/// the tries are counted. The result is that of the first try that has succeeded.
///
/// # Panics
/// If a try fails without a proven excuse, or too many tries fail.
#[track_caller]
pub fn repeat<T, E: std::fmt::Debug>(
    what: &str,
    excuses: &[Excuse<'_>],
    mut test: impl FnMut() -> Result<T, E>,
) -> T {
    let mut tries = 1;
    loop {
        let watch = Watch::new();
        let failure = match test() {
            Ok(result) => return result,
            Err(failure) => failure,
        };
        let Some(proof) = watch.proof(excuses) else {
            panic!("{what}: try {tries} failed, and nothing has disturbed it: {failure:?}");
        };
        eprintln!("{what}: try {tries} is repeated: {proof}: {failure:?}");
        assert!(
            tries < MAX_TRIES,
            "{what}: {tries} tries were disturbed: {failure:?}"
        );
        tries += 1;
    }
}

/// Runs a whole test, again if it fails while the kernel reclaims pages: for tests that count cached pages.
///
/// # Panics
/// As [`repeat`].
#[track_caller]
pub fn unless_reclaimed(test: impl Fn()) {
    repeat("a test of cached pages", &[Excuse::AnyReclaimed], || {
        catch_unwind(AssertUnwindSafe(&test))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    fn file(dir: &tempfile::TempDir) -> std::path::PathBuf {
        let path = dir.path().join("file");
        let mut file = File::create(&path).unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        file.sync_all().unwrap();
        path
    }

    #[test]
    fn a_failure_without_an_excuse_is_not_repeated() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = file(&dir);
        let _locked = pages::Locked::new(&path, std::iter::once(0..100_000));
        for excuses in [&[][..], &[Excuse::Reclaimed(&[&path])]] {
            let mut tries = 0;
            let failed = catch_unwind(AssertUnwindSafe(|| {
                repeat("a test", excuses, || {
                    tries += 1;
                    Err::<(), _>("wrong")
                });
            }));
            assert!(failed.is_err());
            assert_eq!(tries, 1);
        }
    }

    /// fadvise(2) is a program's, and no excuse.
    #[test]
    fn evicted_pages_are_not_reclaimed() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = file(&dir);
        if pages::reclaimed(&path).is_none() {
            return;
        }
        let excuse = Excuse::Reclaimed(&[&path]);
        let file = File::open(&path).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert!(pages::resident(&path).iter().any(|page| !page));
        assert_eq!(Watch::new().proof(&[excuse]), None);
    }

    #[test]
    fn a_thread_that_loses_its_processor_is_excused() {
        let mut tries = 0;
        let done = repeat("a test", &[Excuse::Preempted], || {
            tries += 1;
            if tries == 3 {
                return Ok(tries);
            }
            // More threads than processors: some are preempted.
            let before = preemptions(libc::RUSAGE_THREAD);
            let stop = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                for _ in 0..2 * std::thread::available_parallelism().unwrap().get() {
                    scope.spawn(|| {
                        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                            std::hint::spin_loop();
                        }
                    });
                }
                while preemptions(libc::RUSAGE_THREAD) == before {
                    std::hint::spin_loop();
                }
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            Err("preempted")
        });
        assert_eq!(done, 3);
    }
}
