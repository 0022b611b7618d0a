//! The read path: carries out the plan of a read in the calling thread.

use std::os::fd::AsFd;
use std::time::Instant;

use super::cached::{Attempt, attempt_of, ended, nowait};
use super::plan::{Facts, Plan, Reason, Request, plan};
use super::start::{Rest, Start, start_operation};
use crate::handle::Handle;
use crate::kernel::flags::RwFlags;
use crate::op::{Advice, Fadvise, Kind, Op, Read, Route};
use crate::policy::Policy;
use crate::policy::history::NowaitPolicy;
use crate::policy::mode::Mode;
use crate::policy::provenance::{Origin, Provenance};
use crate::policy::readahead::WINDOW;
use crate::policy::stats::{Count, is_timed, ns_since};
use crate::sys::rw::{self, Offset, checked};
use crate::sys::uninit_slice::UninitSlice;
use crate::sys::{self, Errno};
use nowait_residency::pages;
use nowait_residency::source_cache::Coverage;

/// The read path of one engine, for the calling thread.
#[derive(Debug)]
pub(crate) struct ReadPath<'a, F, A> {
    pub(crate) policy: &'a Policy,
    /// Returns the number of the engine's operations that need a device. All threads write it, so
    /// that it takes time to read it.
    pub(crate) in_flight: F,
    /// Hands a readahead to a worker.
    pub(crate) read_ahead: A,
    /// True if the reads are submitted with others and can go to a ring with them.
    pub(crate) batch: bool,
}

impl<F: Fn() -> usize, A: Fn(Op)> ReadPath<'_, F, A> {
    /// Runs the part of one read that belongs to the calling thread. An expected hit is tried at once. All other
    /// reads follow their plan.
    ///
    /// Without an offset it reads at the file's own position and moves it. The kernel locks the
    /// position during the call. Like read(2) it may then return fewer bytes than are available.
    #[inline]
    pub(crate) fn start(
        &self,
        handle: &Handle,
        space: &mut UninitSlice<'_>,
        offset: Offset,
        flags: RwFlags,
    ) -> Start {
        let len = space.len();
        if self.policy.is_timed && is_timed() {
            return self.start_timed(handle, space, offset, flags);
        }
        if flags.is_empty() && self.expects_hit(handle, len) {
            let got = nowait(handle.as_fd(), space, offset);
            if got == Ok(len) {
                self.policy.counters.hit(len);
                return Start::Done(len, Provenance::of(len, Origin::Cache));
            }
            return self.after_try(handle, len, offset, got);
        }
        self.start_by_plan(handle, space, offset, flags, None)
    }

    /// Returns true only if the plan of a read without flags is [`Plan::CacheFirst`].
    #[inline]
    fn expects_hit(&self, handle: &Handle, len: usize) -> bool {
        !self.batch && self.policy.tries() && handle.expects_hits() && len <= self.policy.copy_limit
    }

    /// Returns true only if the plan is to queue the read as one of a batch: a hit, which the ring tries.
    #[inline]
    fn expects_batch(&self, read: &Read, offset: u64) -> bool {
        self.batch
            && self.policy.tries()
            && read.flagged().is_empty()
            && read.file().expects_hits()
            && read.size() <= self.policy.copy_limit
            && checked(Some(offset), read.size()).is_ok()
    }

    /// The rest of [`start`](Self::start) after a try that was expected to be a hit and was none.
    #[cold]
    fn after_try(
        &self,
        handle: &Handle,
        len: usize,
        offset: Offset,
        got: Result<usize, Errno>,
    ) -> Start {
        let mut started = after_nowait(self.policy, handle, len, offset, got, false);
        if let (Start::Rest(rest), Some(at)) = (&mut started, offset) {
            count_rest(handle, rest, at, len, false);
        }
        started
    }

    #[cold]
    fn start_timed(
        &self,
        handle: &Handle,
        space: &mut UninitSlice<'_>,
        offset: Offset,
        flags: RwFlags,
    ) -> Start {
        self.start_by_plan(handle, space, offset, flags, Some(Instant::now()))
    }

    /// Decides by the plan and follows it. With a timer, the cost of a hit or miss is observed.
    #[inline(never)]
    fn start_by_plan(
        &self,
        handle: &Handle,
        space: &mut UninitSlice<'_>,
        offset: Offset,
        flags: RwFlags,
        timer: Option<Instant>,
    ) -> Start {
        let (mode, len) = (self.mode(handle), space.len());
        // A strict file that is read at its own position has to be read ahead from there.
        let from = match mode {
            Mode::Eager => None,
            Mode::Strict => offset.or_else(|| rustix::fs::tell(handle).ok()),
        };
        let (mut started, reason) = self.serve(handle, mode, space, offset, flags, timer);
        if let (Start::Rest(rest), Some(offset)) = (&mut started, offset) {
            let tries = self.policy.nowait != NowaitPolicy::Never;
            let skipped = tries && reason == Some(Reason::LowHitRate);
            count_rest(handle, rest, offset, len, skipped);
        }
        if let Some(from) = from
            && let Some(op) = readahead(handle, from, len, &started)
        {
            (self.read_ahead)(op);
        }
        started
    }

    /// The same for a read whose rest no engine reads. The second value is the reason if nothing was
    /// tried.
    pub(crate) fn try_alone(
        &self,
        handle: &Handle,
        space: &mut UninitSlice<'_>,
        offset: u64,
    ) -> (Start, Option<Reason>) {
        if self.expects_hit(handle, space.len()) {
            let got = nowait(handle.as_fd(), space, Some(offset));
            let started = after_nowait(self.policy, handle, space.len(), Some(offset), got, false);
            return (started, None);
        }
        let (mode, flags) = (self.mode(handle), RwFlags::empty());
        self.serve(handle, mode, space, Some(offset), flags, None)
    }

    /// Runs the part of a read operation that belongs to the calling thread. `None` if the
    /// operation goes to the engine unchanged.
    // The result is moved once.
    #[inline(always)]
    pub(crate) fn start_op(&self, op: &mut Op) -> Option<Start> {
        let Kind::Read(read) = &mut op.body.kind else {
            return None;
        };
        let (offset, flags) = (read.positional()?, read.flagged());
        if read.is_direct() {
            // The plan would decide the same, later. Such reads are frequent.
            return None;
        }
        if self.expects_batch(read, offset) {
            return None;
        }
        Some(start_operation(read, |handle, space| {
            self.start(handle, space, Some(offset), flags)
        }))
    }

    /// The plan for a read of `len` bytes at an offset, without a change of the file's history.
    pub(crate) fn plan(&self, handle: &Handle, len: usize) -> Plan {
        let policy = self.policy;
        let mode = self.mode(handle);
        let request = Request {
            len,
            flags: RwFlags::empty(),
            batch: self.batch,
        };
        let decide = || handle.history().foresee(policy.nowait, policy.costs());
        let is_alone = || (self.in_flight)() == 0;
        let facts = self.facts(handle, mode);
        plan(request, facts, mode, policy.copy_limit, decide, is_alone)
    }

    /// The mode of a file: its own or the engine's.
    fn mode(&self, handle: &Handle) -> Mode {
        handle.mode().unwrap_or(self.policy.mode)
    }

    /// Carries out the plan. The second value is the reason if nothing was tried.
    fn serve(
        &self,
        handle: &Handle,
        mode: Mode,
        space: &mut UninitSlice<'_>,
        offset: Offset,
        flags: RwFlags,
        timer: Option<Instant>,
    ) -> (Start, Option<Reason>) {
        let (policy, len) = (self.policy, space.len());
        if let Err(errno) = checked(offset, len) {
            return (Start::Failed(errno), None);
        }
        if policy.polled {
            // Polled engines accept only O_DIRECT files. The engine refuses others.
            return (rest(0, false, Route::Ring), None);
        }
        let facts = self.facts(handle, mode);
        let request = Request {
            len,
            flags,
            batch: self.batch,
        };
        let decide = || handle.history().decide(policy.nowait, || policy.costs());
        let is_alone = || (self.in_flight)() == 0;
        let plan = plan(request, facts, mode, policy.copy_limit, decide, is_alone);
        let started = match plan {
            Plan::CacheFirst => try_timed(policy, handle, space, offset),
            Plan::AskFirst => ask_first(policy, handle, space, offset, facts),
            Plan::Inline => inline(policy, handle, space, offset),
            Plan::Queue(reason) => {
                if reason == Reason::LowHitRate {
                    policy.counters.count(Count::Skipped);
                }
                let route = if reason == Reason::Large {
                    Route::Worker
                } else {
                    Route::Ring
                };
                return (rest(0, false, route), Some(reason));
            }
        };
        if let Some(timer) = timer {
            let ns = ns_since(timer);
            match &started {
                Start::Done(_, p) if p.cached > 0 => policy.observed.hit(len, ns),
                Start::Rest(rest) if rest.missed => policy.observed.miss(ns),
                _ => {}
            }
        }
        (started, None)
    }

    /// The facts that the plan needs. Looks for a residency source, and for congestion, only if the
    /// plan depends on it.
    fn facts(&self, handle: &Handle, mode: Mode) -> Facts {
        if mode == Mode::Strict {
            handle.leave_readahead_to_the_engine();
        }
        let regular = handle.is_regular();
        let memory = handle.filesystem().is_memory();
        let nowait_refused = handle.nowait_read().is_refused() || !regular;
        let direct = handle.is_direct();
        let asks = mode == Mode::Strict || nowait_refused;
        let congested = !asks && !direct && !memory && self.is_congested(handle);
        let asks = (asks || congested) && !memory && regular;
        // The kernel's own files have a size of 0 and no pages, all of which are resident.
        let is_told = asks && !handle.is_served() && !handle.waits_without_end();
        Facts {
            direct,
            memory: memory && regular,
            nowait_refused,
            nowait_works: handle.nowait_read().works(),
            residency: is_told && handle.has_residency(),
            congested,
        }
    }

    /// Returns true if a try of the page cache may wait for a device. A file that always hits is
    /// tried in any case, since hits usually wait for nothing.
    fn is_congested(&self, handle: &Handle) -> bool {
        !always_hits(handle) && self.policy.congestion.is_congested((self.in_flight)())
    }
}

/// Counts the bytes of the rest that are in the page cache, so that its completion can report the
/// origin of its bytes. This takes some microseconds before a read from the device. For one page
/// the completion itself reports it.
fn count_rest(handle: &Handle, rest: &mut Rest, offset: u64, len: usize, skipped: bool) {
    let (at, left) = (offset + rest.done as u64, len - rest.done);
    let tells = rest.missed || skipped;
    let counts = tells && rest.resident.is_none() && rest.route == Route::Ring;
    if counts && pages(at, left as u64) > 1 {
        rest.resident = handle.resident_bytes(at, left);
        if let (Some(resident), false) = (rest.resident, rest.missed) {
            handle.history().record(resident as usize >= left);
        }
    }
}

/// The readahead operation that a worker performs after a read of `len` bytes of a strict file.
///
/// The kernel's readahead is off for a strict file, because the calling thread would pay for it. If
/// reads are sequential and have missed, a worker starts a readahead, and starts the next one
/// before the reads reach the end of it.
fn readahead(handle: &Handle, offset: u64, len: usize, started: &Start) -> Option<Op> {
    if handle.is_direct() {
        return None;
    }
    let missed = matches!(started, Start::Rest(_));
    let from = handle.readahead().next(offset, len as u64, missed)?;
    Some(Fadvise::new(handle, from, WINDOW, Advice::WillNeed).into())
}

/// Returns true if all recent reads of the file were hits.
fn always_hits(handle: &Handle) -> bool {
    handle.nowait_read().works() && handle.history().always_hits()
}

/// Tries NOWAIT in the calling thread, and notes if it had to wait. A file that always hits is not
/// timed, since that takes some percent of the time of a hit.
fn try_timed(
    policy: &Policy,
    handle: &Handle,
    space: &mut UninitSlice<'_>,
    offset: Offset,
) -> Start {
    let begun = (!always_hits(handle)).then(Instant::now);
    let started = try_cache(policy, handle, space, offset);
    if let Some(begun) = begun {
        policy.congestion.tried(begun.elapsed());
    }
    started
}

/// Tries NOWAIT in the calling thread. The engine reads the rest.
fn try_cache(
    policy: &Policy,
    handle: &Handle,
    space: &mut UninitSlice<'_>,
    offset: Offset,
) -> Start {
    let was_resident = handle.false_misses().is_sample() && is_resident(handle, offset);
    let got = nowait(handle.as_fd(), space, offset);
    after_nowait(policy, handle, space.len(), offset, got, was_resident)
}

/// The result of a try of `len` bytes. `was_resident` is true if the first byte was looked for, and was in
/// the page cache.
fn after_nowait(
    policy: &Policy,
    handle: &Handle,
    len: usize,
    offset: Offset,
    got: Result<usize, Errno>,
    was_resident: bool,
) -> Start {
    let false_misses = handle.false_misses();
    match attempt_of(handle.as_fd(), got, len, offset, |at, n| {
        has_ended(handle, at, n)
    }) {
        Attempt::All(n) => {
            handle.nowait_read_worked();
            false_misses.worked();
            handle.history().hit();
            policy.counters.hit(n);
            Start::Done(n, Provenance::of(n, Origin::Cache))
        }
        Attempt::Part(n) => {
            // The next read finds out why this one was short.
            handle.nowait_read_worked();
            false_misses.worked();
            policy.counters.hit(n);
            Start::Done(n, Provenance::of(n, Origin::Cache))
        }
        Attempt::Prefix(n) => {
            handle.nowait_read_worked();
            false_misses.worked();
            handle.history().miss();
            policy
                .counters
                .add2(Count::Prefixes, 1, Count::PrefixBytes, n as u64);
            rest(n, true, Route::Ring)
        }
        Attempt::Nothing => {
            handle.nowait_read_worked();
            handle.history().miss();
            policy.counters.count(Count::Misses);
            if false_misses.failed(was_resident) {
                handle.nowait_read_stopped();
                policy.counters.count(Count::Stopped);
            }
            rest(0, true, Route::Ring)
        }
        Attempt::NotNow => untried(policy, Count::Misses),
        Attempt::FalseEof => untried(policy, Count::FalseEnds),
        Attempt::Refused(_) => {
            handle.nowait_read_refused();
            untried(policy, Count::Refusals)
        }
        Attempt::Failed(errno) => Start::Failed(errno),
    }
}

/// All of a read is left to the engine. The try is counted.
fn untried(policy: &Policy, count: Count) -> Start {
    policy.counters.count(count);
    rest(0, false, Route::Ring)
}

/// Returns true if the first byte of a read is in the page cache.
#[cold]
fn is_resident(handle: &Handle, offset: Offset) -> bool {
    let offset = offset.or_else(|| rustix::fs::tell(handle).ok());
    offset.is_some_and(|at| handle.resident_bytes(at, 1) == Some(1))
}

/// Queries residency, and reads in the calling thread only if the range is resident.
fn ask_first(
    policy: &Policy,
    handle: &Handle,
    space: &mut UninitSlice<'_>,
    offset: Offset,
    facts: Facts,
) -> Start {
    let Ok(at) = offset.map_or_else(|| rustix::fs::tell(handle), Ok) else {
        // lseek(2) refuses some regular files, such as those of tracefs.
        return rest(0, false, Route::Ring);
    };
    match handle.residency().ask(handle.as_fd(), at, space.len()) {
        Coverage::Full if facts.nowait_refused && may_be_endless(handle) => {
            rest(0, false, Route::Ring)
        }
        Coverage::Full if facts.nowait_refused => plain(policy, handle, space, offset),
        Coverage::Full => {
            let started = try_cache(policy, handle, space, offset);
            if matches!(&started, Start::Rest(rest) if rest.missed) {
                policy.counters.count(Count::Races);
            }
            started
        }
        coverage @ (Coverage::Partial | Coverage::Empty) => {
            handle.history().miss();
            policy.counters.count(Count::Misses);
            Start::Rest(Rest {
                resident: (coverage == Coverage::Empty).then_some(0),
                ..Rest::of(0, true, Route::Ring)
            })
        }
        Coverage::Unknown(_) => rest(0, false, Route::Ring),
    }
}

/// Returns true if a file may be one of a pseudo filesystem, a read of which may wait without end. They
/// have a size of 0, and so no page that is missing.
fn may_be_endless(handle: &Handle) -> bool {
    !handle.filesystem().is_overlay() && sys::stat::size(handle.as_fd()).is_ok_and(|size| size == 0)
}

/// An ordinary read. Used if NOWAIT is refused (overlayfs) and the pages were resident a moment
/// ago.
fn plain(policy: &Policy, handle: &Handle, space: &mut UninitSlice<'_>, offset: Offset) -> Start {
    let started = in_caller(handle, space, offset, Origin::Cache);
    if let Start::Done(n, _) = started {
        handle.history().hit();
        policy.counters.hit(n);
    }
    started
}

/// An ordinary read of a memory-backed file.
fn inline(policy: &Policy, handle: &Handle, space: &mut UninitSlice<'_>, offset: Offset) -> Start {
    policy.counters.count(Count::Inline);
    in_caller(handle, space, offset, Origin::Cache)
}

/// An ordinary read in the calling thread. The engine continues a short read that did not reach the
/// end of the file.
fn in_caller(
    handle: &Handle,
    space: &mut UninitSlice<'_>,
    offset: Offset,
    origin: Origin,
) -> Start {
    match rw::preadv2(handle.as_fd(), space, offset, 0) {
        Ok(n) => match offset {
            Some(at) if 0 < n && n < space.len() && !has_ended(handle, at, n) => {
                rest(n, false, Route::Ring)
            }
            _ => Start::Done(n, Provenance::of(n, origin)),
        },
        Err(Errno::INTR) => rest(0, false, Route::Ring),
        Err(errno) => Start::Failed(errno),
    }
}

/// Returns true if a short read of `n` bytes has reached the end of the file.
fn has_ended(handle: &Handle, offset: u64, n: usize) -> bool {
    handle.ends_at(offset + n as u64) || ended(handle.as_fd(), offset, n)
}

fn rest(done: usize, missed: bool, route: Route) -> Start {
    Start::Rest(Rest::of(done, missed, route))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_file::TestFile;

    /// The path of a process without an engine, with another policy.
    fn with_path<T>(
        policy: &Policy,
        batch: bool,
        call: impl FnOnce(&ReadPath<'_, fn() -> usize, fn(Op)>) -> T,
    ) -> T {
        call(&ReadPath {
            policy,
            in_flight: || 1,
            read_ahead: drop,
            batch,
        })
    }

    fn policy(mode: Mode, nowait: NowaitPolicy, polled: bool) -> Policy {
        Policy {
            counters: Default::default(),
            observed: Default::default(),
            congestion: crate::policy::congestion::Congestion::new(),
            mode,
            nowait,
            copy_limit: 8192,
            polled,
            is_timed: false,
        }
    }

    /// The results that do not depend on the addresses of memory.
    fn shown(started: &Start) -> String {
        format!("{started:?}")
    }

    #[test]
    fn an_expected_hit_has_the_results_of_the_plan() {
        let test = TestFile::new();
        let size = test.bytes.len() as u64;
        let policy = policy(Mode::Eager, NowaitPolicy::Adaptive, false);
        let offsets = [0, 1, size - 1, size, size + 1, i64::MAX as u64, u64::MAX];
        let offsets = offsets.map(Some).into_iter().chain([None]);
        for offset in offsets {
            for len in [0, 1, test.bytes.len(), test.bytes.len() + 1] {
                let mut results = Vec::new();
                for by_plan in [false, true] {
                    let file = handle(&test, None, |_| {});
                    let mut room = vec![0; len];
                    let mut space = UninitSlice::from(&mut room);
                    let flags = RwFlags::empty();
                    let started = with_path(&policy, false, |path| {
                        assert!(path.expects_hit(&file, len));
                        match by_plan {
                            true => path.start_by_plan(&file, &mut space, offset, flags, None),
                            false => path.start(&file, &mut space, offset, flags),
                        }
                    });
                    let history = file.history().recent();
                    results.push((shown(&started), room, history, file.nowait_read().works()));
                }
                assert_eq!(results[0], results[1], "{offset:?} {len}");
            }
        }
    }

    #[test]
    fn one_expected_hit_in_64_is_timed() {
        let test = TestFile::new();
        let file = handle(&test, None, |_| {});
        let mut policy = policy(Mode::Eager, NowaitPolicy::Adaptive, false);
        policy.is_timed = true;
        let before = policy.costs().hit;
        let mut room = [0; 16];
        for _ in 0..10_000 {
            let mut space = UninitSlice::from(&mut room);
            let flags = RwFlags::empty();
            with_path(&policy, false, |path| {
                path.start(&file, &mut space, Some(0), flags)
            });
        }
        assert_ne!(policy.costs().hit, before);
    }

    /// A handle whose reads were hits, and that is then changed.
    fn handle(test: &TestFile, mode: Option<Mode>, change: impl FnOnce(&Handle)) -> Handle {
        let fd = std::fs::File::open(&test.path).unwrap().into();
        let handle = Handle::try_new(fd, mode).unwrap();
        handle.nowait_read_worked();
        change(&handle);
        handle
    }

    #[test]
    fn a_read_is_expected_to_go_with_its_batch_only_where_the_plan_says_so() {
        let test = TestFile::new();
        let hits = handle(&test, None, |_| {});
        let strict = handle(&test, Some(Mode::Strict), |_| {});
        let missed = handle(&test, None, |it| it.history().miss());
        let mut expected = 0;
        for mode in [Mode::Eager, Mode::Strict] {
            let policy = policy(mode, NowaitPolicy::Adaptive, false);
            for (file, len, batch) in [&hits, &strict, &missed]
                .into_iter()
                .flat_map(|file| [0, 4096, 8193].map(|len| (file, len)))
                .flat_map(|(file, len)| [false, true].map(|batch| (file, len, batch)))
            {
                for offset in [0, i64::MAX as u64, u64::MAX] {
                    let read = Read::new(file, Box::new(vec![0; len]), offset);
                    let (expects, plan) = with_path(&policy, batch, |path| {
                        (path.expects_batch(&read, offset), path.plan(file, len))
                    });
                    if expects {
                        assert_eq!(plan, Plan::Queue(Reason::Batch));
                        assert!(checked(Some(offset), len).is_ok());
                        expected += 1;
                    }
                }
            }
        }
        // Both lengths at the first offset, and no bytes at the last one that the kernel takes.
        assert_eq!(expected, 3);
    }

    #[test]
    fn a_hit_is_expected_only_where_the_plan_tries() {
        let test = TestFile::new();
        let files: [(&str, Handle); 7] = [
            ("hits", handle(&test, None, |_| {})),
            ("eager", handle(&test, Some(Mode::Eager), |_| {})),
            ("strict", handle(&test, Some(Mode::Strict), |_| {})),
            ("a miss", handle(&test, None, |it| it.history().miss())),
            ("refused", handle(&test, None, Handle::nowait_read_refused)),
            ("stopped", handle(&test, None, Handle::nowait_read_stopped)),
            (
                "a false miss",
                handle(&test, None, |it| _ = it.false_misses().failed(false)),
            ),
        ];
        let mut expected = Vec::new();
        for mode in [Mode::Eager, Mode::Strict] {
            for nowait in [
                NowaitPolicy::Adaptive,
                NowaitPolicy::Always,
                NowaitPolicy::Never,
            ] {
                for (polled, batch) in [(false, false), (true, false), (false, true)] {
                    let policy = policy(mode, nowait, polled);
                    for (name, handle) in &files {
                        for len in [4096, 8192, 8193] {
                            let (expects, plan) = with_path(&policy, batch, |path| {
                                (path.expects_hit(handle, len), path.plan(handle, len))
                            });
                            if expects {
                                assert_eq!(plan, Plan::CacheFirst, "{name} {policy:?}");
                                expected.push((*name, len));
                            }
                        }
                    }
                }
            }
        }
        // In eager mode, with both policies that try.
        let hits = [
            ("hits", 4096),
            ("hits", 8192),
            ("eager", 4096),
            ("eager", 8192),
        ];
        assert_eq!(expected, [hits, hits].concat());
    }
}
