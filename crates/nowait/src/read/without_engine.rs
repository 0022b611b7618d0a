//! Reads of cached data for programs that hand the rest to threads of their own, by the rules of the
//! read path.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use super::cached::{Cached, cached_by_nowait};
use super::path::ReadPath;
use super::plan::{Facts, Plan, Reason, Request, plan};
use super::start::Start;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::kernel::flags::RwFlags;
use crate::policy::congestion::Congestion;
use crate::policy::history::{CacheDecision, History};
use crate::policy::mode::Mode;
use crate::policy::{COPY_LIMIT, Policy};
use crate::sys::Errno;
use crate::sys::uninit_slice::UninitSlice;
use nowait_residency::pages;
use nowait_residency::sys::page_cache::cachestat;

/// Reads the bytes of a range that the page cache has, if the rules of an engine's reads are in
/// favour of a try. Returns `None` if they are not; nothing was read then.
///
/// A program with a pool of threads calls it before it queues a read. These are the rules:
///
/// - By the file's history, recent tries have paid. The result counts in the history, which all clones
///   of the handle share.
/// - The read is at most [`COPY_LIMIT`] long, and the file is not open with O_DIRECT.
/// - Where `RWF_NOWAIT` is refused, for a handle with [`Mode::Strict`], and for a second after a try
///   that has waited for a device, the kernel is asked first which pages are resident. A missing page
///   is [`Cached::Nothing`].
/// - A file in memory is read, also if it is in swap.
///
/// # Errors
/// As [`cached`](super::cached), and any errno of an ordinary read of a file in memory or of resident
/// pages, such as EIO.
///
/// ```
/// use nowait::read::{Cached, try_cached};
/// let file = nowait::Handle::new(std::fs::File::open("Cargo.toml")?)?;
/// let mut buf = [0; 64];
/// match try_cached(&file, &mut buf, 0)? {
///     Some(Cached::All(n)) => println!("{n} bytes from the page cache"),
///     Some(_) => println!("not all of it is cached: for the pool"),
///     None => println!("not tried: for the pool"),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn try_cached<'a>(
    handle: &Handle,
    buf: impl Into<UninitSlice<'a>>,
    offset: u64,
) -> Result<Option<Cached>> {
    let mut space = buf.into();
    let path = ReadPath {
        policy: Policy::without_engine(),
        // Other reads of the program may be in flight.
        in_flight: || 1,
        read_ahead: drop,
        batch: false,
    };
    let was_refused = handle.nowait_read().is_refused();
    let (mut started, mut reason) = path.try_alone(handle, &mut space, offset);
    let is_refused = || handle.nowait_read().is_refused();
    let has_nothing = |started: &Start| matches!(started, Start::Rest(rest) if rest.done == 0);
    if !was_refused && is_refused() && has_nothing(&started) {
        // Now the plan is another one.
        (started, reason) = path.try_alone(handle, &mut space, offset);
    }
    let rest = match started {
        Start::Done(n, _) => return Ok(Some(Cached::All(n))),
        Start::Failed(errno) => {
            return Err(Error::os("cached read", errno).on(handle.shared_path()));
        }
        Start::Rest(rest) => rest,
    };
    let unsupported = || Cached::Unsupported(Error::os("preadv2 RWF_NOWAIT", Errno::OPNOTSUPP));
    Ok(match (rest.done, rest.missed, reason) {
        (n @ 1.., ..) => Some(Cached::Prefix(n)),
        (0, true, _) => Some(Cached::Nothing),
        (0, false, Some(Reason::CannotTell) | None) if is_refused() => Some(unsupported()),
        (0, false, Some(_)) => None,
        // Another error: the ordinary read returns it.
        (0, false, None) => Some(Cached::Nothing),
    })
}

/// The knowledge of a program about a bare descriptor that it reads, for [`Rules::try_cached`].
#[derive(Clone, Copy, Debug)]
pub struct BareFile<'a, D> {
    /// The results of earlier reads.
    pub history: &'a History,
    /// Returns the decision of the [history](History::decide), which counts the read. It is called only
    /// if the read may be tried.
    pub decide: D,
    /// True if the file is open with O_DIRECT.
    pub is_direct: bool,
    /// True if `RWF_NOWAIT` was [refused](Cached::Unsupported) on the file.
    pub is_refused: bool,
    /// The number of other operations of the program that are in flight.
    pub in_flight: usize,
}

/// The rules of an engine's reads, for a program that reads bare descriptors and hands the rest to
/// threads of its own. A program has one of them, for all its files.
///
/// ```
/// use nowait::cost::Costs;
/// use nowait::read::{BareFile, Cached, History, NowaitPolicy, Rules};
/// static RULES: Rules = Rules::new();
/// let (file, history) = (std::fs::File::open("Cargo.toml")?, History::new());
/// let read = BareFile {
///     history: &history,
///     decide: || history.decide(NowaitPolicy::Adaptive, Costs::default),
///     is_direct: false,
///     is_refused: false,
///     in_flight: 0,
/// };
/// let mut buf = [0; 64];
/// match RULES.try_cached(&file, read, &mut buf, 0)? {
///     Some(Cached::All(n)) => println!("{n} bytes from the page cache"),
///     Some(_) | None => println!("for the threads"),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Rules {
    congestion: Congestion,
    /// True if the kernel, or a program that emulates it, has no cachestat(2). valgrind prints a
    /// warning at each call.
    cannot_ask: AtomicBool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules::new()
    }
}

impl Rules {
    /// The rules of a program none of whose tries has waited.
    pub const fn new() -> Rules {
        Rules {
            congestion: Congestion::new(),
            cannot_ask: AtomicBool::new(false),
        }
    }

    /// As [`cached_by_nowait`], if the rules are in favour of a try; otherwise `None`. The result
    /// counts in the file's history.
    ///
    /// - A read of more than [`COPY_LIMIT`], and of a file that is open with O_DIRECT, is not tried.
    /// - If the history is not in favour, a read is tried while nothing else is in flight: the try
    ///   that fails starts the device.
    /// - A try may wait for a place in a device's queue. While many operations are in flight, and for
    ///   a second after a try that has waited, the kernel is asked first which pages are resident. A
    ///   file that always hits is tried in any case.
    ///
    /// # Errors
    /// As [`cached`](super::cached).
    pub fn try_cached<'a>(
        &self,
        fd: impl AsFd,
        file: BareFile<'_, impl FnOnce() -> CacheDecision>,
        buf: impl Into<UninitSlice<'a>>,
        offset: u64,
    ) -> Result<Option<Cached>> {
        let space = buf.into();
        let always_hits = file.history.always_hits();
        let request = Request {
            len: space.len(),
            flags: RwFlags::empty(),
            batch: false,
        };
        let facts = Facts {
            direct: file.is_direct,
            memory: false,
            nowait_refused: file.is_refused,
            nowait_works: !file.is_refused,
            residency: !file.is_refused && !self.cannot_ask.load(Relaxed),
            congested: !always_hits && self.congestion.is_congested(file.in_flight),
        };
        let (mode, is_alone) = (Mode::Eager, || file.in_flight == 0);
        match plan(request, facts, mode, COPY_LIMIT, file.decide, is_alone) {
            Plan::CacheFirst => {}
            // One cachestat(2), which waits for nothing. Other questions allocate memory, or open the file.
            Plan::AskFirst => match cachestat(fd.as_fd(), offset, space.len() as u64) {
                Ok(found) if found.cached >= pages(offset, space.len() as u64) => {}
                Ok(found) if found.cached == 0 => {
                    file.history.miss();
                    return Ok(Some(Cached::Nothing));
                }
                Err(Errno::NOSYS) => {
                    self.cannot_ask.store(true, Relaxed);
                    return Ok(None);
                }
                Ok(_) | Err(_) => return Ok(None),
            },
            Plan::Inline | Plan::Queue(_) => return Ok(None),
        }
        let begun = (!always_hits).then(Instant::now);
        let read = cached_by_nowait(fd, space, offset)?;
        if let Some(begun) = begun {
            self.congestion.tried(begun.elapsed());
        }
        match read {
            Cached::All(_) => file.history.hit(),
            Cached::Prefix(_) | Cached::Nothing | Cached::Unsupported(_) => file.history.miss(),
        }
        Ok(Some(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_file::TestFile;

    #[test]
    fn the_rules_of_engines_decide_about_a_bare_descriptor() {
        let (rules, history, test) = (Rules::new(), History::new(), TestFile::new());
        let file = std::fs::File::open(&test.path).unwrap();
        let mut room = vec![0; COPY_LIMIT + 1];
        let mut is_tried = |decision, len: usize, in_flight, is_direct, is_refused| {
            let known = BareFile {
                history: &history,
                decide: || decision,
                is_direct,
                is_refused,
                in_flight,
            };
            let read = rules.try_cached(&file, known, &mut room[..len], 0).unwrap();
            // Miri has no preadv2(2).
            if let Some(Cached::All(n)) = read {
                assert_eq!(room[..n], test.bytes[..n]);
            }
            read.is_some()
        };
        let (yes, skip) = (CacheDecision::Try, CacheDecision::Skip);
        assert!(is_tried(yes, 100, 0, false, false));
        assert!(is_tried(yes, COPY_LIMIT, 0, false, false));
        assert!(!is_tried(yes, COPY_LIMIT + 1, 0, false, false));
        assert!(is_tried(skip, 100, 0, false, false), "alone");
        assert!(!is_tried(skip, 100, 1, false, false));
        assert!(!is_tried(yes, 100, 0, true, false), "O_DIRECT");
        assert!(!is_tried(yes, 100, 0, false, true), "refused");
        // Many operations fill the queue of a device: the kernel is asked first.
        for _ in 0..100 {
            history.miss();
        }
        assert!(is_tried(yes, 100, 31, false, false));
        let asks = cfg!(not(miri)) && cachestat(file.as_fd(), 0, 100).is_ok();
        assert_eq!(is_tried(yes, 100, 32, false, false), asks);
    }

    #[test]
    fn reads_that_are_not_tried_do_not_count_in_the_history() {
        let (rules, history) = (Rules::new(), History::new());
        let test = TestFile::new();
        let file = std::fs::File::open(&test.path).unwrap();
        let known = BareFile {
            history: &history,
            decide: || unreachable!("a large read asks no history"),
            is_direct: false,
            is_refused: false,
            in_flight: 0,
        };
        let mut room = vec![0; COPY_LIMIT + 1];
        let read = rules.try_cached(&file, known, &mut room[..], 0).unwrap();
        assert!(read.is_none());
    }
}
