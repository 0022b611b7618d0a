//! The number of system calls that a residency question takes, counted with ptrace(2) in a child process.
//!
//! A range that is fully cached or not cached takes one call, a fragmented cache a bounded number. A hole of
//! terabytes is not scanned.
#![allow(unsafe_code, reason = "ptrace(2), fork(2)")]

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nowait::residency::{
    Probe, Source, page_map, page_size, residency, residency_of_files, residency_of_ranges,
    resident_prefix,
};

use crate::common::cache::evict;
use crate::common::children::alone;
use crate::common::files::scratch;

const CACHESTAT: i64 = 451;
const MIB: u64 = 1 << 20;

/// The system calls of a child that runs `body`, by their number.
struct Calls(HashMap<i64, u64>);

impl Calls {
    fn of(body: impl FnOnce()) -> Calls {
        // SAFETY: the child runs `body` and ends; this process has no thread that matters to it.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: plain calls; the parent sees the stop and lets us go on.
            unsafe {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::raise(libc::SIGSTOP);
            }
            let ended = catch_unwind(AssertUnwindSafe(body));
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(if ended.is_ok() { 0 } else { 1 }) };
        }
        assert!(pid > 0);
        let mut calls = HashMap::new();
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
        let mut status = 0;
        // SAFETY: a child of ours, stopped whenever it is asked about; `status` and `info` live
        // through the calls.
        unsafe {
            assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
            assert!(libc::WIFSTOPPED(status), "{status:x}");
            assert_eq!(libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options), 0);
            loop {
                assert_eq!(libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, 0), 0);
                assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
                if !libc::WIFSTOPPED(status) {
                    break;
                }
                if libc::WSTOPSIG(status) != libc::SIGTRAP | 0x80 {
                    continue;
                }
                let mut info: libc::ptrace_syscall_info = std::mem::zeroed();
                let size = size_of_val(&info);
                let told = libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, pid, size, &raw mut info);
                assert!(told > 0, "{}", std::io::Error::last_os_error());
                if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
                    *calls.entry(info.u.entry.nr as i64).or_default() += 1;
                }
            }
        }
        assert_eq!(status, 0, "the child failed; its message is above");
        Calls(calls)
    }

    fn number(&self, call: i64) -> u64 {
        self.0.get(&call).copied().unwrap_or(0)
    }

    fn all(&self) -> u64 {
        self.0.values().sum()
    }
}

/// Runs `body` with a file of this size, in a child: it forks.
fn with_file(size: u64, body: impl FnOnce(&File)) {
    alone(|| {
        let dir = scratch();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; size as usize]).expect("write");
        evict(&path);
        let file = File::options().read(true).write(true).open(&path);
        let file = file.expect("open");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).expect("fadvise");
        body(&file);
    });
}

fn has_cachestat() -> bool {
    nowait::support::Kernel::get().cachestat.is_yes()
}

/// Half of the pages were read. Some machines reclaim pages without a shortage (DAMON): a page may be gone
/// a millisecond later. The kernel counts those.
fn every_other_page(file: &File, cached: u64) {
    let sum = residency(file, 0..u64::MAX).expect("an answer");
    let sum = sum.known().expect("a count");
    let read = sum.pages / 2;
    match sum.evicted {
        Some(evicted) => assert!(
            cached <= read && cached + evicted >= read,
            "{cached} {sum:?}"
        ),
        None => assert!((read * 4 / 5..=read).contains(&cached), "{cached} {sum:?}"),
    }
}

/// The number of system calls of a child that asks nothing.
fn floor() -> u64 {
    Calls::of(|| ()).all()
}

#[test]
fn a_whole_or_absent_range_is_one_question() {
    with_file(8 * MIB, |file| {
        for warm in [false, true] {
            if warm {
                file.read_exact_at(&mut vec![0; 8 * MIB as usize], 0)
                    .expect("read");
            }
            for question in [
                &(|| assert!(page_map(file, 0..u64::MAX).is_ok())) as &dyn Fn(),
                &|| assert!(resident_prefix(file, 0, u64::MAX).is_ok()),
                &|| assert!(residency(file, 0..u64::MAX).is_ok()),
            ] {
                let calls = Calls::of(question);
                if has_cachestat() {
                    // One more call checks that the call works.
                    assert_eq!(calls.number(CACHESTAT), 2, "{:?}", calls.0);
                    assert_eq!(calls.number(libc::SYS_mincore), 0, "{:?}", calls.0);
                }
                assert!(calls.all() <= floor() + 12, "{:?}", calls.0);
            }
            // The question of a strict read, when the source is known.
            let probe = Probe::new(file).expect("an probe");
            let calls = Calls::of(|| {
                let answer = probe.is_resident(4096, 4096).expect("an answer");
                assert_eq!(answer.known(), Some(warm));
            });
            let most = if has_cachestat() && warm { 1 } else { 2 };
            assert_eq!(calls.all(), floor() + most, "{:?}", calls.0);
        }
    });
}

#[test]
fn a_fragmented_cache_takes_a_bounded_number() {
    with_file(64 * MIB, |file| {
        let pages = 64 * MIB / page_size();
        for p in (0..pages).step_by(2) {
            file.read_exact_at(&mut [0], p * page_size()).expect("read");
        }
        let calls = Calls::of(|| {
            let map = page_map(file, 0..u64::MAX).expect("an answer");
            every_other_page(file, map.known().expect("a map").cached());
        });
        assert!(calls.all() <= 900, "{:?}", calls.0);
        let calls = Calls::of(|| {
            let prefix = resident_prefix(file, 0, u64::MAX).expect("an answer");
            assert_eq!(prefix.known(), Some(page_size()));
        });
        assert!(calls.all() <= 60, "{:?}", calls.0);
        if !has_cachestat() {
            return;
        }
        // cachestat(2) alone needs a call for each page: there is no bound.
        let calls = Calls::of(|| {
            let probe = Probe::only(Source::Cachestat, file).expect("cachestat");
            let map = probe.page_map(0..u64::MAX).expect("an answer");
            every_other_page(file, map.known().expect("a map").cached());
        });
        assert!(calls.number(CACHESTAT) > pages);
    });
}

#[test]
fn a_hole_of_terabytes_is_not_gone_through() {
    with_file(4096, |file| {
        file.set_len(2 << 40).expect("set_len");
        file.write_all_at(b"end", (2 << 40) - 3).expect("write");
        let probe = Probe::new(file).expect("an probe");
        let mincore = Probe::only(Source::Mincore, file).expect("a mapping");
        for probe in [&probe, &mincore] {
            let calls = Calls::of(|| {
                let map = probe.page_map(0..u64::MAX).expect("an answer");
                assert_eq!(map.known().expect("a map").cached(), 1);
            });
            assert!(calls.all() <= 200, "{:?}", calls.0);
        }
    });
}

/// Two calls of statx(2) and one of cachestat(2) for each file, beside its open(2) and close(2). The first file of a
/// mount takes one question more.
#[test]
fn many_files_and_ranges_take_a_question_each() {
    alone(|| {
        const NUMBER: u64 = 20;
        let dir = scratch();
        let paths: Vec<_> = (0..NUMBER)
            .map(|n| dir.path().join(n.to_string()))
            .collect();
        paths
            .iter()
            .for_each(|path| std::fs::write(path, [7; 100]).unwrap());
        let file = File::open(&paths[0]).unwrap();
        let probe = Probe::new(&file).expect("a probe");
        if probe.source() != Ok(Source::Cachestat) {
            return;
        }
        let calls = Calls::of(|| {
            let mut answers = residency_of_files(&paths).map(|it| it.unwrap().known().unwrap());
            assert!(answers.all(|it| it.pages == 1));
        });
        // Without the number of the mount, each file is asked about twice.
        let asked = [NUMBER + 1, 2 * NUMBER];
        assert!(asked.contains(&calls.number(CACHESTAT)), "{:?}", calls.0);
        // The list of leases is read once or several times, each with up to two calls of statx(2).
        let statx = calls.number(libc::SYS_statx);
        assert!((2 * NUMBER..3 * NUMBER).contains(&statx), "{:?}", calls.0);
        let ranges = vec![0..100; NUMBER as usize];
        let calls = Calls::of(|| assert!(residency_of_ranges(&file, &ranges).is_ok()));
        assert_eq!(calls.number(CACHESTAT), NUMBER + 1, "{:?}", calls.0);
    });
}
