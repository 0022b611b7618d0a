//! Tries the flags and queries of the filesystem on the test file.
//!
//! The order matters: residency is queried for pages that were just written, then the file is
//! evicted, and then cold reads are checked for a false end of file. Checks that change the file
//! come last.

use std::fs::File;

use nowait::residency::{Probe, Source};
use nowait::{RwFlags, read, write};
use rustix::fs::{Advice, AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use serde::Serialize;

use super::fact::{Fact, Facts};
use super::test_file::{Selected, TestFile};

/// The results of the checks.
#[derive(Default)]
pub struct Checks {
    pub facts: Facts,
    pub direct: Option<Alignment>,
    pub false_ends: FalseEnds,
}

impl Checks {
    /// Returns true if the check with this key succeeded.
    pub fn works(&self, key: &str) -> bool {
        self.facts
            .get(key)
            .is_some_and(|fact| fact.ok == Some(true))
    }
}

/// The alignment in bytes that O_DIRECT requires for memory and offsets.
#[derive(Serialize)]
pub struct Alignment {
    pub memory: u32,
    pub offset: u32,
}

/// The NOWAIT reads that returned 0 before the end of the file.
#[derive(Default, Serialize)]
pub struct FalseEnds {
    /// The number of reads that were misses.
    pub tested: Option<u64>,
    pub false_ends: Option<u64>,
    pub why: Option<String>,
}

impl FalseEnds {
    /// It could not be tested.
    pub fn untested(why: &str) -> FalseEnds {
        FalseEnds {
            why: Some(why.into()),
            ..FalseEnds::default()
        }
    }
}

/// The number of cold reads that are checked for a false end of file.
const COLD_READS: u64 = 64;
/// The alignment in bytes of the memory for O_DIRECT checks.
const ALIGN: usize = 65_536;

/// Does all checks.
pub fn all(test_file: &TestFile) -> Checks {
    let Some((file, temporary)) = test_file.file() else {
        let Selected::None(why) = &test_file.selected else {
            return Checks::default();
        };
        return Checks {
            false_ends: FalseEnds::untested(why),
            ..Checks::default()
        };
    };
    let mut facts = Vec::new();
    let size = file.metadata().map_or(0, |meta| meta.len());
    let nowait = nowait_read(file);
    let nowait_works = nowait.ok == Some(true);
    facts.push(nowait);
    let residency = if temporary {
        temporary_residency(file, size)
    } else {
        given_residency(file)
    };
    let evicts = residency[0].ok == Some(true);
    let false_ends = match (temporary, nowait_works, evicts) {
        (false, ..) => FalseEnds::untested("a user's file is not evicted"),
        (_, false, _) => FalseEnds::untested("NOWAIT reads are refused"),
        (_, _, false) => FalseEnds::untested("pages cannot be evicted"),
        _ => false_ends(file, size),
    };
    if temporary {
        facts.push(nowait_write(file));
    }
    let (direct, alignment) = direct(file);
    let with_direct = direct.ok == Some(true);
    facts.push(read_flag(file, RwFlags::HIPRI, with_direct));
    facts.push(read_flag(file, RwFlags::DONTCACHE, false));
    if temporary {
        facts.extend(write_flags(file, size, with_direct));
    }
    facts.extend(residency);
    facts.push(direct);
    Checks {
        facts: Facts(facts),
        direct: alignment,
        false_ends,
    }
}

fn nowait_read(file: &File) -> Fact {
    let fact = |ok| match ok {
        None => Fact::yes("nowait_read", "NOWAIT read"),
        Some(errno) => Fact::refused("nowait_read", "NOWAIT read", errno),
    };
    match read::with_flags(file, &mut [0; 64], 0, RwFlags::NOWAIT) {
        Ok(_) => fact(None),
        Err(e) => match e.errno() {
            // EAGAIN means that the flag is supported.
            Some(errno) if errno == Errno::AGAIN.raw_os_error() => match misses_resident(file) {
                false => fact(None),
                true => {
                    let why = "does not find pages that are resident: the program asks for residency instead";
                    Fact::no("nowait_read", "NOWAIT read", why)
                }
            },
            errno => fact(Some(errno.unwrap_or_default())),
        },
    }
}

/// Returns true if all of some NOWAIT reads fail, each right after an ordinary read of the same byte. Kernels
/// have had that fault.
fn misses_resident(file: &File) -> bool {
    const TRIES: u32 = 64;
    (0..TRIES).all(|_| {
        let read = rustix::io::pread(file, &mut [0; 1], 0);
        let tried = read::with_flags(file, &mut [0; 1], 0, RwFlags::NOWAIT);
        matches!(read, Ok(1))
            && tried.is_err_and(|e| e.errno() == Some(Errno::AGAIN.raw_os_error()))
    })
}

/// Tries a NOWAIT write to cached pages.
fn nowait_write(file: &File) -> Fact {
    let fact = Fact::yes("nowait_write", "NOWAIT write");
    match write::with_flags(file, &[1; 64], 0, RwFlags::NOWAIT) {
        Ok(_) => fact,
        Err(e) if e.errno() == Some(Errno::AGAIN.raw_os_error()) => fact.noting("returned EAGAIN"),
        Err(e) => Fact::refused(fact.key, fact.label, e.errno().unwrap_or_default()),
    }
}

/// Tries eviction, cachestat and mincore on a temporary file whose pages were just written.
fn temporary_residency(file: &File, size: u64) -> [Fact; 3] {
    let pages = size / page();
    let count = || [Source::Cachestat, Source::Mincore].map(|source| counted(source, file, size));
    let warm = count();
    evict(file);
    let cold = count();
    // Eviction works if one of the two calls saw pages disappear, or if a read is then a miss.
    let seen_going = |i: usize| matches!((warm[i], cold[i]), (Ok(1..), Ok(0)));
    let misses = || {
        read::with_flags(file, &mut [0; 64], size / 2, RwFlags::NOWAIT)
            .is_err_and(|e| e.errno() == Some(Errno::AGAIN.raw_os_error()))
    };
    let evicts = seen_going(0) || seen_going(1) || misses();
    let eviction = if evicts {
        Fact::yes("eviction", "eviction").noting("FADV_DONTNEED")
    } else {
        Fact::no(
            "eviction",
            "eviction",
            "pages stay after FADV_DONTNEED, so no cold read is possible",
        )
    };
    let truth = |key, i: usize| match (warm[i], cold[i]) {
        (Err(errno), _) | (_, Err(errno)) => Fact::refused(key, key, errno.raw_os_error()),
        (Ok(warm), _) if warm < pages => Fact::no(
            key,
            key,
            format!("wrong: counts {warm} of {pages} pages just written"),
        ),
        (_, Ok(1..)) if !evicts => Fact::yes(key, key).noting("counts written pages"),
        (_, Ok(cold @ 1..)) => Fact::no(
            key,
            key,
            format!("wrong: counts {cold} of {pages} evicted pages"),
        ),
        _ => Fact::yes(key, key).noting("correct for written and for evicted pages"),
    };
    [eviction, truth("cachestat", 0), truth("mincore", 1)]
}

/// Tries cachestat and mincore on a user's file. One page is read, and no page is evicted.
fn given_residency(file: &File) -> [Fact; 3] {
    let eviction = Fact::untried("eviction", "eviction", "a user's file is not evicted");
    let read = rustix::io::pread(file, &mut [0; 1], 0);
    if !matches!(read, Ok(1)) {
        let why = "the file is empty or cannot be read";
        return [
            eviction,
            Fact::untried("cachestat", "cachestat", why),
            Fact::untried("mincore", "mincore", why),
        ];
    }
    let cachestat = match counted(Source::Cachestat, file, 1) {
        Err(Errno::PERM) => {
            let why = "denied for a file that you may not write (EPERM)";
            Fact::no("cachestat", "cachestat", why)
        }
        Err(errno) => Fact::refused("cachestat", "cachestat", errno.raw_os_error()),
        Ok(0) => Fact::no(
            "cachestat",
            "cachestat",
            "wrong: does not count a page just read",
        ),
        Ok(_) => Fact::yes("cachestat", "cachestat").noting("counts a page just read"),
    };
    // A page far beyond the end of the file cannot be resident.
    let wrong = Probe::only(Source::Mincore, file).and_then(|probe| probe.is_untrustworthy());
    let sees = counted(Source::Mincore, file, 1);
    let mincore = match (wrong.map_err(errno_of), sees) {
        (Err(errno), _) | (_, Err(errno)) => {
            Fact::refused("mincore", "mincore", errno.raw_os_error())
        }
        (Ok(true), _) => Fact::no(
            "mincore",
            "mincore",
            "wrong: reports every page of a file that you may not write as resident",
        ),
        (_, Ok(0)) => Fact::no(
            "mincore",
            "mincore",
            "wrong: does not count a page just read",
        ),
        _ => Fact::yes("mincore", "mincore")
            .noting("counts a page just read, and none beyond the end"),
    };
    [eviction, cachestat, mincore]
}

/// The number of pages that this source counts in the first `len` bytes, even if the source is not
/// trustworthy.
fn counted(source: Source, file: &File, len: u64) -> Result<u64, Errno> {
    let asked = Probe::only(source, file).and_then(|probe| probe.residency(0..len));
    let answer = asked.map_err(errno_of)?;
    answer.known().map(|sum| sum.cached).ok_or(Errno::NOSYS)
}

/// Checks that a NOWAIT read that is a miss does not return 0 before the end of the file. Linux 5.9
/// and 5.10 do.
fn false_ends(file: &File, size: u64) -> FalseEnds {
    evict(file);
    let stride = (size / page() / COLD_READS).max(1);
    let (mut tested, mut ends) = (0, 0);
    for i in 0..COLD_READS {
        let offset = i * stride * page();
        if offset >= size {
            break;
        }
        match read::with_flags(file, &mut [0; 4096], offset, RwFlags::NOWAIT) {
            Ok(0) => (tested, ends) = (tested + 1, ends + 1),
            // A hit: a read nearby has read the page, or the device was faster than the read.
            Ok(_) => {}
            Err(_) => tested += 1,
        }
    }
    FalseEnds {
        tested: Some(tested),
        false_ends: Some(ends),
        why: None,
    }
}

/// Tries an aligned O_DIRECT read, and queries the required alignment (statx, 6.1).
fn direct(file: &File) -> (Fact, Option<Alignment>) {
    let fact = Fact::yes("direct", "O_DIRECT");
    let asked = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let alignment = asked.ok().and_then(|statx| {
        let reported = statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
        (reported && statx.stx_dio_mem_align > 0).then_some(Alignment {
            memory: statx.stx_dio_mem_align,
            offset: statx.stx_dio_offset_align,
        })
    });
    let mut memory = Aligned::new();
    let tried = directly(file, || rustix::io::pread(file, memory.first(4096), 0));
    match (tried, &alignment) {
        (Err(errno), _) => (
            Fact::refused(fact.key, fact.label, errno.raw_os_error()),
            None,
        ),
        (Ok(_), Some(a)) => {
            let note = format!(
                "memory aligned to {}, offset to {} bytes",
                a.memory, a.offset
            );
            (fact.noting(note), alignment)
        }
        (Ok(_), None) => (fact.noting("the kernel does not report an alignment"), None),
    }
}

/// Runs `act` with O_DIRECT set on the file.
fn directly<T>(file: &File, act: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    with_status(file, OFlags::DIRECT, act)
}

/// Runs `act` with a status flag set on the file.
fn with_status<T>(
    file: &File,
    flag: OFlags,
    act: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let before = rustix::fs::fcntl_getfl(file)?;
    rustix::fs::fcntl_setfl(file, before | flag)?;
    let done = act();
    rustix::fs::fcntl_setfl(file, before)?;
    done
}

/// Tries a read with a flag, with O_DIRECT if `direct`.
fn read_flag(file: &File, flag: RwFlags, direct: bool) -> Fact {
    let mut memory = Aligned::new();
    let mut act = || errno(read::with_flags(file, memory.first(4096), 0, flag));
    let tried = if direct { directly(file, act) } else { act() };
    flag_fact("read", flag, tried.map(drop), direct)
}

/// Tries writes with each flag, and checks the effect if it can be observed.
fn write_flags(file: &File, size: u64, direct: bool) -> Vec<Fact> {
    let mut memory = Aligned::new();
    let len = atomic_unit(file).unwrap_or(4096).min(ALIGN);
    let bytes: &[u8] = memory.first(len);
    let put = |offset, flag| errno(write::with_flags(file, bytes, offset, flag));
    let length = || file.metadata().map_or(0, |meta| meta.len());
    let plainly = |flag| flag_fact("write", flag, put(0, flag).map(drop), false);
    let in_direct = |flag| {
        let tried = if direct {
            directly(file, || put(0, flag))
        } else {
            put(0, flag)
        };
        flag_fact("write", flag, tried.map(drop), direct)
    };
    let mut facts = vec![
        in_direct(RwFlags::HIPRI),
        plainly(RwFlags::DSYNC),
        plainly(RwFlags::SYNC),
    ];

    let grew = put(0, RwFlags::APPEND).map(|n| length() == size + n as u64);
    let _ = file.set_len(size);
    facts.push(shown(RwFlags::APPEND, grew));

    let stayed = with_status(file, OFlags::APPEND, || put(0, RwFlags::NOAPPEND));
    let stayed = stayed.map(|_| length() == size);
    let _ = file.set_len(size);
    facts.push(shown(RwFlags::NOAPPEND, stayed));

    facts.push(in_direct(RwFlags::ATOMIC));
    facts.push(plainly(RwFlags::DONTCACHE));
    facts
}

/// The smallest atomic write that the file supports, in bytes (statx, 6.11).
fn atomic_unit(file: &File) -> Option<usize> {
    /// `STATX_WRITE_ATOMIC`.
    const WRITE_ATOMIC: StatxFlags = StatxFlags::from_bits_retain(0x1_0000);
    let statx = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, WRITE_ATOMIC).ok()?;
    let reported = statx.stx_mask & WRITE_ATOMIC.bits() != 0 && statx.stx_atomic_write_unit_min > 0;
    reported.then_some(statx.stx_atomic_write_unit_min as usize)
}

/// The fact for a flag whose effect can be observed.
fn shown(flag: RwFlags, tried: Result<bool, Errno>) -> Fact {
    let fact = flag_fact("write", flag, tried.map(drop), false);
    match tried {
        Ok(false) => Fact::no(fact.key, fact.label, "accepted but ignored"),
        _ => fact,
    }
}

fn flag_fact(call: &str, flag: RwFlags, tried: Result<(), Errno>, direct: bool) -> Fact {
    let name = flag.iter_names().next().map_or("", |(name, _)| name);
    let key = format!("{call}_{}", name.to_lowercase());
    let label = format!("{name} {call}");
    match tried {
        Ok(()) if direct => Fact::yes(key, label).noting("with O_DIRECT"),
        Ok(()) => Fact::yes(key, label),
        Err(errno) => Fact::refused(key, label, errno.raw_os_error()),
    }
}

/// Evicts the pages of a temporary file, as far as the filesystem allows.
pub fn evict(file: &File) {
    // Pages under I/O and pages in a processor's queue stay. The second call evicts them.
    for _ in 0..2 {
        let _ = rustix::fs::fdatasync(file);
        let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
    }
}

/// Memory that is aligned for O_DIRECT.
struct Aligned(Vec<u8>);

impl Aligned {
    fn new() -> Aligned {
        Aligned(vec![0; 2 * ALIGN])
    }

    fn first(&mut self, len: usize) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(ALIGN);
        &mut self.0[start..start + len]
    }
}

fn errno(tried: nowait::Result<usize>) -> Result<usize, Errno> {
    tried.map_err(errno_of)
}

fn errno_of(error: impl Into<nowait::Error>) -> Errno {
    Errno::from_raw_os_error(error.into().errno().unwrap_or(libc::EIO))
}

fn page() -> u64 {
    rustix::param::page_size() as u64
}
