//! A file of which pages were missing in the page cache before the program opened it.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, UNIX_EPOCH};

use nowait_ahead_channel::{Event, Missing, birth};
use nowait_page_cache::open_for_readahead;
use nowait_residency::windows::{WINDOW, evict, missing};
use nowait_residency::{Probe, Residency, page_size, residency};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, fstat, makedev, open,
    openat2, readlink, statx,
};

use crate::directory::{Id, is_on_disk};
use crate::surveyed::{Surveyed, share};

/// The file, and what of it is to be evicted.
pub struct SurveyedFile {
    /// The path by which the file is opened for each eviction. A descriptor would keep the program from getting a lease for writing
    /// (fcntl(2)), or from unmounting the filesystem, and would keep the space of a removed file.
    path: PathBuf,
    pub id: Id,
    /// Its [`birth`], or 0. A file that is created later may have the number of this one.
    pub birth: u32,
    /// The ID of the mount.
    pub mount: u64,
    /// The pages that were resident before the program could read them.
    pub surveyed: Surveyed,
    /// It was read ahead. A survey of the program may be older than that for the readahead, or later.
    pub is_read_ahead: bool,
    /// It was read ahead, and the program has not opened it since. It is not evicted while the program runs.
    pub is_expected: bool,
    /// The [`Reading`] of each thread that has read it ahead. Several threads read a file that has several names.
    readings: Vec<Weak<()>>,
    size: u64,
    /// The offset before which pages were evicted while the file was in use.
    evicted_to: u64,
    /// The number of looks in a row that have found no page, after an eviction.
    clean: u32,
    /// Pages were evicted since the file was last in use.
    is_evicted: bool,
    /// The number of evictions since then after which no page was there.
    complete: u32,
    attempts: u32,
    /// The bytes that were resident before, and those that are since the last eviction. `None` if that is not known.
    counted: Option<(u64, u64)>,
    /// The bytes of these that were not resident before, at the end of the program.
    left: u64,
    /// The time of the next attempt.
    next: Instant,
}

/// The pages of a file after an eviction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Left {
    /// The bytes that are resident, and were not before.
    pub left: u64,
    /// The bytes of these that are not yet written to the device.
    pub unwritten: u64,
    /// Some are known to be changed.
    pub is_dirty: bool,
    /// The kernel does not report whether some are changed.
    may_be_dirty: bool,
}

/// A file with this size is evicted behind its reader.
const LARGE: u64 = 4 * WINDOW;
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The time after which changed pages are looked at again. Later ones are up to five times as long:
/// the kernel writes them after 5 to 30 seconds, or earlier if a program asks for it.
const DIRTY_PAUSE: Duration = Duration::from_secs(1);
/// A process may have opened and surveyed the file before the eviction. It has the file open at the
/// next look, or has read pages that are found then.
const MIN_CLEAN: u32 = 1;

impl SurveyedFile {
    /// From a descriptor of the file with this ID and [`birth`]. `None` if it is another file, or one without pages on a disk. If the
    /// birth is 0, a file with the same ID is taken for the same.
    pub fn new(file: &OwnedFd, (id, birth): (Id, u32), surveyed: Surveyed) -> Option<SurveyedFile> {
        let stat = stat(file)?;
        let is_regular = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
        let (its_id, its_birth) = identity(&stat);
        let is_same = its_id == id && may_be_same(its_birth, birth);
        if !is_regular || !is_same || !is_on_disk(file) {
            return None;
        }
        let size = stat.stx_size;
        Some(SurveyedFile {
            path: path_of(file)?,
            id,
            birth: its_birth,
            mount: stat.stx_mnt_id,
            surveyed,
            is_read_ahead: false,
            is_expected: false,
            readings: Vec::new(),
            size,
            evicted_to: 0,
            clean: 0,
            is_evicted: false,
            complete: 0,
            attempts: 0,
            counted: None,
            left: 0,
            next: Instant::now(),
        })
    }

    /// Surveys a file that is about to be read ahead of the program, and adds it to `files`. It is evicted when the program has
    /// opened and closed it, or has ended. The caller drops the result when it has begun to read all of the file. `None` if the file is
    /// not to be read ahead, because its pages would stay: as for [`new`](SurveyedFile::new), or without a survey, or if the survey has
    /// more ranges than the file's [`share`].
    pub fn before_readahead(file: &OwnedFd, files: &ReadAheadFiles) -> Option<Reading> {
        let identity = identity(&stat(file)?);
        let mut kept = SurveyedFile::new(file, identity, Surveyed::default())?;
        let reading = Reading::default();
        (kept.is_read_ahead, kept.is_expected) = (true, true);
        kept.readings = vec![Arc::downgrade(&reading.0)];
        let mut surveyed = files.lock();
        let max_ranges = share(surveyed.taken + surveyed.new.len());
        let missing = missing(&Probe::new(file).ok()?, 0..u64::MAX)?;
        if missing.len() > max_ranges {
            return None;
        }
        kept.surveyed = Surveyed::whole(missing);
        surveyed.new.push(kept);
        Some(reading)
    }

    /// Adds a part that was surveyed, if the file then has at most `max` ranges. The program may have read a file before it was
    /// surveyed for the readahead.
    pub fn add(&mut self, part: Missing<'_>, max: usize) {
        (self.clean, self.is_evicted, self.complete) = (0, false, 0);
        match self.is_read_ahead {
            true => {
                let mut more = Surveyed::default();
                more.add(part, usize::MAX);
                self.surveyed.unite(more, max);
            }
            false => self.surveyed.add(part, max),
        }
    }

    /// Adds the same file, which was surveyed again: to be read ahead, or when it had another name.
    pub fn unite(&mut self, again: SurveyedFile, max: usize) {
        (self.clean, self.is_evicted, self.complete) = (0, false, 0);
        self.is_read_ahead |= again.is_read_ahead;
        self.is_expected |= again.is_expected;
        self.readings.retain(|it| it.strong_count() > 0);
        self.readings.extend(again.readings);
        self.surveyed.unite(again.surveyed, max);
    }

    /// Returns false if the program is expected to open the file, or if a thread still reads it ahead.
    pub fn may_be_evicted(&self) -> bool {
        !self.is_expected && !self.is_being_read()
    }

    /// Returns true if a thread still reads the file ahead.
    pub fn is_being_read(&self) -> bool {
        self.readings.iter().any(|it| it.strong_count() > 0)
    }

    /// The program has opened the file once more, and has surveyed it.
    pub fn opened_again(&mut self, event: &Event, max: usize) {
        self.is_expected = false;
        match self.is_read_ahead {
            true => self.surveyed.unite(Surveyed::opened(event), max),
            false => self.surveyed.add_opened(event, max),
        }
    }

    /// Returns true if the file is evicted behind its reader.
    pub fn is_large(&self) -> bool {
        self.size.max(self.surveyed.missing.end()) >= LARGE
    }

    /// The file has this path now, perhaps.
    pub fn is_named(&mut self, path: &Path) {
        if open_path(path).is_some_and(|file| self.is(&file)) {
            path.clone_into(&mut self.path);
        }
    }

    fn is(&self, file: &OwnedFd) -> bool {
        stat(file).is_some_and(|stat| {
            let (id, birth) = identity(&stat);
            id == self.id && may_be_same(birth, self.birth)
        })
    }

    /// The path and the survey of a file that is not there any more, but may have been renamed.
    pub fn path_if_renamed(&self) -> Option<(&Path, &Surveyed)> {
        let is_gone = !self.is_clean() && self.find().is_none();
        is_gone.then_some((&self.path, &self.surveyed))
    }

    /// Evicts the windows before `position`, which the program has read or written. `open` is the path of a descriptor of the
    /// program: the file may have no name any more.
    pub fn evict_behind(&mut self, position: u64, open: Option<&Path>) {
        let end = position / WINDOW * WINDOW;
        (self.clean, self.is_evicted, self.complete) = (0, false, 0);
        if end <= self.evicted_to {
            return;
        }
        let by_descriptor = || reopen_at(open?).filter(|file| self.is(file));
        if let Some(fd) = self.open().or_else(by_descriptor) {
            self.evict_to(&fd, end);
            self.evicted_to = end;
        }
    }

    /// Evicts the pages of a file that the program does not use any more. Returns true if it may be
    /// forgotten.
    pub fn evict(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        let left = self.evict_all(false);
        self.next = now
            + match left {
                Some(Left { is_dirty: true, .. }) => DIRTY_PAUSE * self.attempts.clamp(1, 5),
                _ => FIRST_PAUSE * (1 << self.attempts.min(5)),
            };
        self.attempts += 1;
        left.is_none() || self.is_clean()
    }

    /// Evicts the pages that were not resident when the file was surveyed. Returns the bytes of these that are resident
    /// now. `None` if the file cannot be opened, or the kernel does not report residency.
    ///
    /// While the program runs, a file with dirty pages is not evicted. If the program `is_over`, the kernel begins to
    /// write them, and the pages that are resident afterwards are returned.
    pub fn evict_all(&mut self, is_over: bool) -> Option<Left> {
        let fd = &self.open()?;
        let stat = stat(fd)?;
        self.size = stat.stx_size;
        if stat.stx_nlink == 0 {
            (self.clean, self.counted) = (MIN_CLEAN, Some((0, 0)));
            return Some(Left::default());
        }
        if is_over {
            self.evict_to(fd, u64::MAX);
            self.counted = self.count(fd);
            let left = self.count_left(fd);
            self.left = left.map_or(0, |it| it.left);
            return left;
        }
        let mut left = self.count_left(fd)?;
        left.is_dirty |= left.may_be_dirty && was_changed(&stat);
        // The advice would write each file by itself. The program or the kernel writes many
        // together.
        if left.is_dirty {
            return Some(left);
        }
        if left.left > 0 || !self.is_evicted {
            self.evict_to(fd, u64::MAX);
            self.complete += u32::from(self.count_left(fd)?.left == 0);
        }
        self.clean = match left.left {
            0 if self.is_evicted => self.clean + 1,
            _ => 0,
        };
        self.is_evicted = true;
        self.counted = self.count(fd);
        Some(left)
    }

    /// Returns true if the last evictions have left no page. Pages that are found later are of another process.
    pub fn is_clean(&self) -> bool {
        self.clean >= MIN_CLEAN || self.complete > MIN_CLEAN
    }

    /// The bytes that were resident before, and those that are since the last eviction. `None` if that is not known. Parts that
    /// were not surveyed are taken to have been as they are: nothing of them is evicted.
    pub fn before_and_after(&self) -> Option<(u64, u64)> {
        self.counted
    }

    fn count(&self, file: &OwnedFd) -> Option<(u64, u64)> {
        let unknown = self.surveyed.unknown(self.size);
        let unknown = unknown
            .map(|range| Some(cached(file, range)?.left))
            .sum::<Option<u64>>()?;
        let after = cached(file, 0..u64::MAX)?.left;
        Some((self.surveyed.resident(self.size) + unknown, after))
    }

    fn evict_to(&self, fd: &OwnedFd, end: u64) {
        for range in self.surveyed.missing.iter() {
            let _ = evict(fd, &(range.start..range.end.min(end)));
        }
    }

    /// The bytes that are left since the last eviction after the program has ended.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// `None` if the kernel does not report residency.
    fn count_left(&self, fd: &OwnedFd) -> Option<Left> {
        let mut sum = Left::default();
        for range in self
            .surveyed
            .missing
            .iter()
            .take_while(|range| range.start < self.size)
        {
            let more = cached(fd, range.clone())?;
            sum.left += more.left;
            sum.unwritten += more.unwritten;
            sum.is_dirty |= more.is_dirty;
            sum.may_be_dirty |= more.may_be_dirty;
        }
        Some(sum)
    }

    /// Opens the file.
    fn open(&self) -> Option<OwnedFd> {
        reopen(&self.find()?)
    }

    /// A descriptor of O_PATH, if the file is at its path.
    fn find(&self) -> Option<OwnedFd> {
        open_path(&self.path).filter(|file| self.is(file))
    }
}

/// A thread reads a file ahead as long as this exists. The evictor does not forget a file that a thread reads ahead: later pages would
/// stay.
#[derive(Default)]
#[must_use]
pub struct Reading(Arc<()>);

/// Surveyed files that the evictor has not yet taken.
#[derive(Default)]
pub struct NewFiles {
    new: Vec<SurveyedFile>,
    /// The number of files that the evictor had when it took the last ones.
    taken: usize,
}

/// The files that are read ahead, which the evictor takes. Clones share them.
#[derive(Clone, Default)]
pub struct ReadAheadFiles {
    surveyed: Arc<Mutex<NewFiles>>,
    /// This list has a lock of its own: the threads that follow the program do not wait for evictions.
    opened: Arc<Mutex<Vec<Id>>>,
}

impl ReadAheadFiles {
    /// Locks the list of new files with their surveys. Meanwhile no file is surveyed, and none is to be evicted: a survey would
    /// find pages that are then evicted.
    pub fn lock(&self) -> MutexGuard<'_, NewFiles> {
        lock(&self.surveyed)
    }

    /// The program has opened this file after it was surveyed.
    pub fn add_opened(&self, id: Id) {
        lock(&self.opened).push(id);
    }

    /// Takes the files that the program has opened. Each is in the list of surveyed files, or was taken from there.
    pub fn take_opened(&self) -> Vec<Id> {
        std::mem::take(&mut *lock(&self.opened))
    }
}

impl NewFiles {
    /// Takes the files. `known` is the number of files that the evictor has already.
    pub fn take(&mut self, known: usize) -> Vec<SurveyedFile> {
        self.taken = known + self.new.len();
        std::mem::take(&mut self.new)
    }
}

fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cached bytes of a range.
fn cached(fd: &OwnedFd, range: Range<u64>) -> Option<Left> {
    let found: Residency = residency(fd, range).ok()?.known()?;
    let unwritten = found.dirty.unwrap_or(found.cached) + found.writeback.unwrap_or(0);
    let page = page_size();
    Some(Left {
        left: found.cached * page,
        unwritten: unwritten * page,
        is_dirty: found.dirty.is_some_and(|pages| pages > 0),
        may_be_dirty: found.dirty.is_none() && found.cached > 0,
    })
}

fn stat(fd: &OwnedFd) -> Option<Statx> {
    let fields = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(fd, c"", flags, fields).ok()
}

/// The device and inode number, and the [`birth`] or 0.
fn identity(stat: &Statx) -> (Id, u32) {
    let device = makedev(stat.stx_dev_major, stat.stx_dev_minor);
    let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    let time = (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec);
    ((device, stat.stx_ino), birth(has_birth.then_some(time)))
}

/// Returns true unless both births are known and differ. FUSE knows the birth of a file only after a program has asked for it.
pub fn may_be_same(birth: u32, other: u32) -> bool {
    birth == other || birth == 0 || other == 0
}

/// The file at a path: its device and inode number with its [`birth`] or 0, and true if it is a directory.
pub fn look(path: &Path) -> Option<((Id, u32), bool)> {
    let stat = stat(&open_path(path)?)?;
    let is_directory = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory;
    Some((identity(&stat), is_directory))
}

/// Returns true if the file was changed so recently that the kernel may not have begun to write it.
fn was_changed(stat: &Statx) -> bool {
    /// The default of `vm.dirty_expire_centisecs`.
    const EXPIRE: Duration = Duration::from_secs(30);
    let secs = u64::try_from(stat.stx_ctime.tv_sec).unwrap_or(0);
    let changed = UNIX_EPOCH + Duration::new(secs, stat.stx_ctime.tv_nsec);
    // A time in the future counts as a long time ago.
    changed.elapsed().is_ok_and(|age| age < EXPIRE)
}

fn proc_path(fd: &OwnedFd) -> String {
    format!("/proc/thread-self/fd/{}", fd.as_raw_fd())
}

fn path_of(fd: &OwnedFd) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let path = readlink(proc_path(fd), Vec::new()).ok()?.into_bytes();
    Some(std::ffi::OsString::from_vec(path).into())
}

/// A descriptor of O_PATH. The links in /proc/PID lead out of namespaces.
pub fn open_path(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS).ok()
}

/// Opens a regular file, so that the program can get a lease for writing meanwhile. Where the kernel does not report residency by such
/// a descriptor (before Linux 6.5), the file is opened for reading.
fn reopen(file: &OwnedFd) -> Option<OwnedFd> {
    let stat = fstat(file).ok()?;
    let opened = open_for_readahead(file, &stat).ok()?;
    match cached(&opened, 0..1) {
        Some(_) => Some(opened),
        None => reopen_at(Path::new(&proc_path(file))),
    }
}

/// Opens a regular file for reading by a path in proc(5). A lease of another process breaks, but is not waited for.
fn reopen_at(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use nowait_residency::ranges::Ranges;
    use rustix::fs::{Advice, fadvise};

    use super::*;

    /// The share of a file becomes smaller with the number of files that the evictor has taken.
    #[test]
    fn the_ranges_of_all_files_that_are_read_ahead_are_bounded() {
        let page = page_size();
        let program = std::env::current_exe().unwrap();
        let is_added = |taken: usize, pages: u64| {
            let file = tempfile::NamedTempFile::new_in(program.parent().unwrap()).unwrap();
            let bytes = vec![7; usize::try_from(pages * page).unwrap()];
            std::fs::write(&file, bytes).unwrap();
            file.as_file().sync_all().unwrap();
            let opened = std::fs::File::open(&file).unwrap().into();
            evict(&opened, &(0..u64::MAX)).unwrap();
            // Every second page is read.
            fadvise(&opened, 0, None, Advice::Random).unwrap();
            for start in (1..pages).step_by(2).map(|number| number * page) {
                rustix::io::pread(&opened, &mut [0; 1], start).unwrap();
            }
            let files = ReadAheadFiles::default();
            files.lock().taken = taken;
            let is_read = SurveyedFile::before_readahead(&opened, &files).is_some();
            assert_eq!(files.lock().new.len(), usize::from(is_read));
            is_read
        };
        assert!(is_added(0, 100));
        assert!(!is_added(1_000_000, 100));
        assert!(is_added(1_000_000, 1));
    }

    /// Another process reads the file all the time.
    #[test]
    fn a_file_that_is_read_again_and_again_is_evicted_twice() {
        let program = std::env::current_exe().unwrap();
        let mut file = tempfile::NamedTempFile::new_in(program.parent().unwrap()).unwrap();
        std::io::Write::write_all(&mut file, &[7; 40_000]).unwrap();
        file.as_file().sync_all().unwrap();
        let opened = open_path(file.path()).unwrap();
        let identity = identity(&stat(&opened).unwrap());
        let surveyed = Surveyed::whole(Ranges::all());
        let mut kept = SurveyedFile::new(&opened, identity, surveyed).unwrap();
        let mut evicted = 0;
        loop {
            std::fs::read(file.path()).unwrap();
            evicted += 1;
            if kept.evict(Instant::now() + Duration::from_secs(3600 * evicted)) {
                break;
            }
            // An eviction may fail while the pages are in the lists of another processor.
            assert!(evicted < 100);
        }
        assert!(evicted >= 2 && kept.complete == 2, "{evicted}");
    }
}
