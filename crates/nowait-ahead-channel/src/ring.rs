//! The channel: counters, and a ring of the latest events.
//!
//! A writer takes the next number of an event, marks the slot as being written (`2 * number + 1`),
//! stores the words, and marks it as complete (`2 * number + 2`). The reader takes the words of the
//! slot, and then marks it as taken (`2 * number + 3`). A writer marks it in the same way to withdraw
//! the event. A mark of a higher number means that the reader was overtaken; one that stays
//! incomplete belongs to a writer that was killed.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::io::Result;
use rustix::thread::futex;

use crate::claims::Claims;
use crate::counter::{self, Moment};
use crate::event::{Event, Kind, Missing, PATH_MAX, Place, WORDS, Words, decode, encode};
use crate::evicted::{Evicted, EvictedFiles};
use crate::memory::Shared;

const SLOTS: usize = 4096;
/// The time after which a writer that has not completed its event is taken for dead.
const PATIENCE: Duration = Duration::from_millis(5);
/// The interval at which the reader looks again at an event that is not complete.
const NAP: Duration = Duration::from_micros(200);
/// The number of slots that a call of the reader passes over before it looks at its deadline.
const PASSED: u32 = 64;

/// The times between two looks of the reader at the events. They become longer while there are
/// none. A program does not wake the reader: that would be a system call.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(4);

#[repr(C)]
#[derive(Debug)]
struct Memory {
    /// Random, so that a program that attaches knows the memory. It is at the beginning.
    key: AtomicU64,
    /// The nanoseconds of a tick of the processor's counter; see [`Moment::scale`]. 0 while they
    /// are not known.
    scale: AtomicU64,
    /// The events that are wanted; see [`Listening`].
    listening: AtomicU32,
    head: Line<AtomicU64>,
    /// The number of the next event that the reader takes.
    read: Line<AtomicU64>,
    /// The number of the next event that is not yet handled.
    handled: Line<AtomicU64>,
    /// The pauses of all programs since the reader has taken one.
    pauses: Line<AtomicU32>,
    /// See [`Channel::opens`].
    opens: AtomicU32,
    /// See [`Channel::readahead`].
    readahead: AtomicU64,
    counts: Line<[AtomicU64; 2]>,
    evicted: Line<Evicted>,
    slots: [Slot; SLOTS],
    claims: Claims,
}

/// A piece of the reader's work in which it may open files.
#[derive(Debug)]
pub struct Opens<'a>(&'a AtomicU32);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A value in cache lines of its own.
#[repr(C, align(64))]
#[derive(Debug)]
struct Line<T>(T);

#[repr(C, align(64))]
#[derive(Debug)]
struct Slot {
    mark: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// The events that `nowait run` wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Listening {
    /// None. The library has no effect.
    Off,
    /// None. Advice of the program does not evict pages.
    Advice,
    /// Those of directories.
    Directories,
    /// Those of directories and of files that are opened. Files are read ahead.
    Files,
}

/// The shared memory of `nowait run` and its programs.
#[derive(Debug)]
pub struct Channel(
    Shared<Memory>,
    /// 1 if the reader shall not sleep, or 0. It is not in the shared memory, where any program
    /// could write.
    AtomicU32,
);

/// The calls of stat(2) that the programs have made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All calls.
    pub stats: u64,
    /// The time of all calls but those within the C library, in nanoseconds.
    pub nanoseconds: u64,
}

impl Channel {
    /// Creates a channel and the descriptor that others open it by.
    ///
    /// # Errors
    /// The errors of memfd_create(2) and mmap(2).
    pub fn create(key: u64) -> Result<(Channel, OwnedFd)> {
        let (memory, fd) = Shared::<Memory>::create()?;
        memory.key.store(key, Ordering::Relaxed);
        let channel = Channel(memory, AtomicU32::new(0));
        channel.listen(Listening::Directories);
        Ok((channel, fd))
    }

    /// Attaches to the channel that another process has created.
    ///
    /// # Errors
    /// The errors of open(2) and mmap(2); EINVAL if the file is another one.
    pub fn attach(path: &Path, key: u64) -> Result<Channel> {
        let memory = Shared::attach(path, key)?;
        Ok(Channel(memory, AtomicU32::new(0)))
    }

    /// Returns true if these events, or more, are wanted.
    pub fn is_listening(&self, to: Listening) -> bool {
        self.0.listening.load(Ordering::Relaxed) >= to as u32
    }

    /// Says which events are wanted.
    pub fn listen(&self, to: Listening) {
        self.0.listening.store(to as u32, Ordering::Release);
    }

    /// Learns the speed of the processor's counter from the time since a moment.
    pub fn learn_speed(&self, since: &Moment) {
        self.0.scale.store(since.scale(), Ordering::Relaxed);
    }

    /// The time in nanoseconds, of a clock of its own. `None` until its speed was learnt. Makes no
    /// system call.
    pub fn now(&self) -> Option<u64> {
        match self.0.scale.load(Ordering::Relaxed) {
            0 => None,
            scale => Some(counter::nanoseconds(scale)),
        }
    }

    /// Tells of an event at `time`, in nanoseconds. Async-signal-safe, makes no system call, and
    /// does not set errno. The event of a path that is too long is dropped.
    pub fn tell(&self, kind: Kind, tid: u32, place: Place<'_>, id: (u64, u64), time: u64) {
        self.tell_numbered(kind, tid, place, id, time);
    }

    /// Returns the number of the event. As [`tell`](Channel::tell) otherwise.
    fn tell_numbered(
        &self,
        kind: Kind,
        tid: u32,
        place: Place<'_>,
        id: (u64, u64),
        time: u64,
    ) -> Option<u64> {
        let stats = self.0.counts.0[0].load(Ordering::Relaxed);
        let words = encode(kind, tid, place, id, [time, stats, 0])?;
        Some(self.push(&words))
    }

    /// Tells that the filesystem is busy that the program unmounts at `path`. A path that is too long is not sent. As
    /// [`tell`](Channel::tell) otherwise. Returns the number of the event.
    pub fn tell_unmounting(&self, tid: u32, path: &[u8]) -> Option<u64> {
        let path = if path.len() > PATH_MAX { b"" } else { path };
        self.tell_numbered(Kind::Unmounting, tid, Place { fd: -1, path }, (0, 0), 0)
    }

    /// Tells of a part of a file that was surveyed. As [`tell`](Channel::tell) otherwise.
    #[inline(always)]
    pub fn tell_missing(&self, tid: u32, id: (u64, u64), part: Missing<'_>) {
        let pages = Place {
            fd: -1,
            path: part.pages,
        };
        if let Some(words) = encode(Kind::Missing, tid, pages, id, [part.start, part.end, 0]) {
            self.push(&words);
        }
    }

    /// Tells of the path of a directory, which may be long. As [`tell`](Channel::tell) otherwise.
    pub fn tell_directory(&self, tid: u32, path: &[u8], id: (u64, u64)) {
        let path = self.tell_path(tid, path, id);
        self.tell(Kind::Directory, tid, Place { fd: -1, path }, id, 0);
    }

    /// Tells that a file was surveyed that has the descriptor `fd` and this [birth](crate::birth), or 0, and was opened by a path
    /// relative to the directory with this [key](crate::key). The path may be long. For `pages` see
    /// [`Event::pages`]. As [`tell`](Channel::tell) otherwise. Returns the number of the event.
    pub fn tell_surveyed(
        &self,
        tid: u32,
        place: Place<'_>,
        id: (u64, u64),
        (fd, birth): (i32, u32),
        [directory, pages]: [u64; 2],
    ) -> Option<u64> {
        let path = self.tell_path(tid, place.path, id);
        let file = u64::from(fd.cast_unsigned()) | u64::from(birth) << 32;
        let numbers = [file, directory, pages];
        let words = encode(Kind::Surveyed, tid, Place { path, ..place }, id, numbers)?;
        Some(self.push(&words))
    }

    /// Tells that a file has got a name, which may be long, relative to the directory with this [key](crate::key). As
    /// [`tell`](Channel::tell) otherwise.
    pub fn tell_named(&self, tid: u32, place: Place<'_>, directory: u64) {
        let path = self.tell_path(tid, place.path, (0, 0));
        let place = Place { path, ..place };
        if let Some(words) = encode(Kind::Named, tid, place, (0, 0), [0, directory, 0]) {
            self.push(&words);
        }
    }

    /// Tells what a program has used, for [`Kind::Used`] and the kinds after it. The path may be
    /// long. As [`tell`](Channel::tell) otherwise.
    pub fn tell_use(&self, kind: Kind, tid: u32, path: &[u8], part: Range<u64>) {
        self.tell_use_of(kind, tid, path, [part.start, part.end, 0]);
    }

    /// Sends a path relative to the directory with this [key](crate::key), which was sent by
    /// [`tell_directory`](Channel::tell_directory). As [`tell_use`](Channel::tell_use) otherwise.
    pub fn tell_use_below(&self, kind: Kind, tid: u32, path: &[u8], directory: u64) {
        self.tell_use_of(kind, tid, path, [0, 0, directory]);
    }

    fn tell_use_of(&self, kind: Kind, tid: u32, path: &[u8], numbers: [u64; 3]) {
        let path = self.tell_path(tid, path, (0, 0));
        if let Some(words) = encode(kind, tid, Place { fd: -1, path }, (0, 0), numbers) {
            self.push(&words);
        }
    }

    /// Tells that the program is about to unmap these addresses. As [`tell`](Channel::tell) otherwise. Returns the
    /// number of the event.
    pub fn tell_unmapping(&self, tid: u32, at: Range<u64>) -> Option<u64> {
        let numbers = [at.start, at.end, 0];
        let words = encode(Kind::Unmapping, tid, Place::NONE, (0, 0), numbers)?;
        Some(self.push(&words))
    }

    /// Returns true if the reader has handled the event with this number, or will not.
    pub fn is_handled(&self, number: Option<u64>) -> bool {
        let handled = self.0.handled.0.load(Ordering::Relaxed);
        number.is_none_or(|number| (handled.wrapping_sub(number) as i64) > 0)
    }

    /// Tells of the parts of a path before the last one, and returns that.
    fn tell_path<'a>(&self, tid: u32, path: &'a [u8], id: (u64, u64)) -> &'a [u8] {
        let (mut offset, mut rest) = (0, path);
        while rest.len() > PATH_MAX {
            let (path, others) = rest.split_at(PATH_MAX);
            self.tell(Kind::Path, tid, Place { fd: -1, path }, id, offset);
            (offset, rest) = (offset + path.len() as u64, others);
        }
        rest
    }

    /// Withdraws an event. Returns false if it was read or overwritten before.
    pub fn withdraw(&self, number: u64) -> bool {
        self.take(number)
    }

    /// Marks a complete event as taken.
    fn take(&self, number: u64) -> bool {
        let slot = &self.0.slots[number as usize % SLOTS];
        let (complete, taken) = (mark(number), taken(number));
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        slot.mark
            .compare_exchange(complete, taken, success, failure)
            .is_ok()
    }

    /// Claims a file that is about to be surveyed, with a token that no other file of any process
    /// has. Returns false if the file is in use elsewhere, or may be.
    pub fn claim(&self, id: (u64, u64), token: u64) -> bool {
        self.0.claims.claim(id, token)
    }

    /// Returns true if the file was not opened elsewhere since it was claimed.
    pub fn is_claimed(&self, id: (u64, u64), token: u64) -> bool {
        self.0.claims.is_claimed(id, token)
    }

    /// Ends a claim. Returns false if the file was opened elsewhere since it was claimed.
    pub fn release(&self, id: (u64, u64), token: u64) -> bool {
        self.0.claims.release(id, token)
    }

    /// Ends all claims of a file that is not in use any more.
    pub fn free(&self, id: (u64, u64)) {
        self.0.claims.free(id);
    }

    /// Counts files that the program has evicted itself.
    pub fn count_evicted(&self, files: EvictedFiles) {
        self.0.evicted.0.add(files);
    }

    /// The files that programs have evicted themselves, for each mount.
    pub fn evicted(&self) -> impl Iterator<Item = EvictedFiles> {
        self.0.evicted.0.sums()
    }

    /// Returns true if some events can be sent without overwriting one that was not read.
    pub fn has_room(&self) -> bool {
        const MARGIN: u64 = 1024;
        let read = self.0.read.0.load(Ordering::Relaxed);
        let unread = self.0.head.0.load(Ordering::Relaxed).wrapping_sub(read);
        unread <= SLOTS as u64 - MARGIN
    }

    /// The greatest number of bytes that the kernel reads ahead of a program. 0 if it is not known.
    pub fn readahead(&self) -> u64 {
        self.0.readahead.load(Ordering::Relaxed)
    }

    /// Sets the number of bytes that the kernel reads ahead.
    pub fn set_readahead(&self, bytes: u64) {
        self.0.readahead.store(bytes, Ordering::Relaxed);
    }

    /// Counts a pause of a program that waits for room. Returns false if there were many since the
    /// reader has taken an event: it has ended, or does not run.
    pub fn may_pause(&self) -> bool {
        const MAX: u32 = 100;
        self.0.pauses.0.fetch_add(1, Ordering::Relaxed) < MAX
    }

    /// Begins a piece of the reader's work in which it may open files. A program cannot unmount their filesystem meanwhile. It ends
    /// when the result is dropped.
    pub fn begin_opens(&self) -> Opens<'_> {
        self.0.opens.fetch_add(1, Ordering::SeqCst);
        Opens(&self.0.opens)
    }

    /// The number of beginnings and ends of such pieces. It is odd while the reader may have a file open.
    pub fn opens(&self) -> u32 {
        self.0.opens.load(Ordering::SeqCst)
    }

    /// Returns the number of the event. Within its callers it needs less of their stack.
    #[inline(always)]
    fn push(&self, event: &Words<'_>) -> u64 {
        let number = self.0.head.0.fetch_add(1, Ordering::Relaxed);
        let slot = &self.0.slots[number as usize % SLOTS];
        let mark = mark(number);
        slot.mark.store(mark.wrapping_sub(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (to, word) in slot.words.iter().zip(event.iter()) {
            to.store(word, Ordering::Relaxed);
        }
        slot.mark.store(mark, Ordering::Release);
        number
    }

    /// Makes the reader return, now or when it is about to wait for an event. For the process of
    /// the reader.
    pub fn wake(&self) {
        self.1.store(1, Ordering::Release);
        let _ = futex::wake(&self.1, futex::Flags::PRIVATE, 1);
    }

    /// Counts calls of stat(2) that took `nanoseconds`.
    pub fn count(&self, stats: u64, nanoseconds: u64) {
        let counts = &self.0.counts.0;
        for (count, more) in counts.iter().zip([stats, nanoseconds]) {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        let [stats, nanoseconds] = self
            .0
            .counts
            .0
            .each_ref()
            .map(|n| n.load(Ordering::Relaxed));
        Counts { stats, nanoseconds }
    }
}

/// The mark of an event that is complete.
fn mark(number: u64) -> u64 {
    number.wrapping_mul(2).wrapping_add(2)
}

/// The mark of an event that was read or withdrawn.
fn taken(number: u64) -> u64 {
    mark(number).wrapping_add(1)
}

/// Reads the events of a channel. A channel has one reader.
#[derive(Debug)]
pub struct Reader<'a> {
    channel: &'a Channel,
    next: u64,
    lost: u64,
    /// The time since which the next event is incomplete.
    incomplete: Option<Instant>,
}

enum Found {
    Event(Event),
    Nothing,
    Incomplete,
    /// So many events were lost. 0 if one was withdrawn.
    Passed(u64),
}

impl<'a> Reader<'a> {
    /// Reads from the first event on.
    pub fn new(channel: &'a Channel) -> Reader<'a> {
        Reader {
            channel,
            next: 0,
            lost: 0,
            incomplete: None,
        }
    }

    /// The events that were overwritten before they were read.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the next event. Waits for it at most until `deadline`, or until [`Channel::wake`] is
    /// called. The events before it are handled.
    pub fn next_until(&mut self, deadline: Instant) -> Option<Event> {
        let handled = &self.memory().handled.0;
        handled.store(self.next, Ordering::Relaxed);
        let mut passed = 0;
        loop {
            match self.look() {
                Found::Event(event) => return Some(event),
                Found::Passed(count) => {
                    self.lost = self.lost.saturating_add(count);
                    passed += 1;
                    if passed % PASSED == 0 && Instant::now() >= deadline {
                        return None;
                    }
                }
                Found::Incomplete => {
                    if Instant::now() >= deadline {
                        return None;
                    }
                    std::thread::sleep(NAP);
                }
                Found::Nothing => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() || self.sleep(left) {
                        return None;
                    }
                }
            }
        }
    }

    /// Waits, so that programs may withdraw the events that they have sent. Returns earlier if the
    /// channel is woken. Then reads the events that were told before the pause with `handle`, until
    /// `deadline`.
    pub fn read_after(
        &mut self,
        pause: Duration,
        deadline: Instant,
        mut handle: impl FnMut(&Event),
    ) {
        let end = self.memory().head.0.load(Ordering::Relaxed);
        self.sleep_once(pause);
        self.read_to(end, deadline, &mut handle);
    }

    /// Reads the events that were told before this call with `handle`, until `deadline`. Those that are left then count as lost. An
    /// event that stays incomplete, because its thread was killed, is lost, too, but not those after it.
    pub fn drain(&mut self, deadline: Instant, mut handle: impl FnMut(&Event)) {
        let end = self.memory().head.0.load(Ordering::Relaxed);
        self.read_to(end, deadline, &mut handle);
        let left = end.wrapping_sub(self.next);
        if left.cast_signed() > 0 {
            self.lost = self.lost.saturating_add(left);
        }
        self.memory().handled.0.store(self.next, Ordering::Relaxed);
    }

    /// Reads the events before number `end`, unless a program has changed the number of events.
    fn read_to(&mut self, end: u64, deadline: Instant, handle: &mut dyn FnMut(&Event)) {
        let began = Instant::now();
        let mut is_left = self.next != end;
        while is_left && Instant::now() < deadline {
            let found = match self.look() {
                // All were begun before this call, and have had that time. There may be thousands if a program has changed the
                // number of events.
                Found::Incomplete if began.elapsed() > PATIENCE => self.pass(1),
                found => found,
            };
            match found {
                Found::Event(event) => handle(&event),
                Found::Passed(count) => self.lost = self.lost.saturating_add(count),
                Found::Incomplete => std::thread::sleep(NAP),
                Found::Nothing => break,
            }
            is_left = end.wrapping_sub(self.next).cast_signed() > 0;
        }
    }

    fn memory(&self) -> &'a Memory {
        &self.channel.0
    }

    fn look(&mut self) -> Found {
        let memory = self.memory();
        let unread = self.unread();
        if unread == 0 {
            return Found::Nothing;
        }
        if unread > SLOTS as u64 {
            // This is also the case if a program has set the number back.
            let half = (SLOTS / 2) as u64;
            self.go_to(self.next.wrapping_add(unread).wrapping_sub(half));
            return Found::Passed(unread - half);
        }
        let slot = &memory.slots[self.next as usize % SLOTS];
        let complete = mark(self.next);
        let found = slot.mark.load(Ordering::Acquire);
        if found == taken(self.next) {
            return self.pass(0);
        }
        if found < complete {
            let since = *self.incomplete.get_or_insert_with(Instant::now);
            return match since.elapsed() > PATIENCE {
                true => self.pass(1),
                false => Found::Incomplete,
            };
        }
        let words = slot
            .words
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if !self.channel.take(self.next) {
            let is_withdrawn = slot.mark.load(Ordering::Relaxed) == taken(self.next);
            return self.pass(u64::from(!is_withdrawn));
        }
        match decode(&words) {
            Some(event) => {
                self.go_to(self.next.wrapping_add(1));
                Found::Event(event)
            }
            None => self.pass(1),
        }
    }

    /// Passes over an event.
    fn pass(&mut self, lost: u64) -> Found {
        self.go_to(self.next.wrapping_add(1));
        Found::Passed(lost)
    }

    fn go_to(&mut self, number: u64) {
        self.next = number;
        self.incomplete = None;
        self.memory().read.0.store(number, Ordering::Relaxed);
        self.memory().pauses.0.store(0, Ordering::Relaxed);
    }

    /// The number of events that were begun and not read.
    fn unread(&self) -> u64 {
        let head = self.memory().head.0.load(Ordering::Relaxed);
        head.wrapping_sub(self.next)
    }

    /// Sleeps until there is an event. Returns true if it was woken without one.
    fn sleep(&self, longest: Duration) -> bool {
        let until = Instant::now() + longest;
        let mut pause = SHORTEST;
        while self.has_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.sleep_once(pause.min(left)) {
                break;
            }
            pause = (2 * pause).min(LONGEST);
        }
        self.has_none()
    }

    /// Sleeps once. Returns true if [`Channel::wake`] has ended it.
    fn sleep_once(&self, longest: Duration) -> bool {
        let woken = &self.channel.1;
        let timeout = futex::Timespec {
            tv_sec: longest.as_secs() as i64,
            tv_nsec: longest.subsec_nanos().into(),
        };
        let _ = futex::wait(woken, futex::Flags::PRIVATE, 0, Some(&timeout));
        woken.swap(0, Ordering::Acquire) == 1
    }

    fn has_none(&self) -> bool {
        self.unread() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::sync::mpsc::RecvTimeoutError;

    fn channel() -> Channel {
        Channel::create(7).unwrap().0
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// umount(2) that fails meanwhile is repeated.
    #[test]
    fn the_number_of_opens_is_odd_while_the_reader_may_have_a_file_open() {
        let channel = channel();
        let before = channel.opens();
        let opens = channel.begin_opens();
        assert_eq!((channel.opens() % 2, channel.opens() - before), (1, 1));
        drop(opens);
        assert_eq!((channel.opens() % 2, channel.opens() - before), (0, 2));
    }

    #[test]
    fn events_of_many_threads_arrive_once_and_in_each_ones_order() {
        let channel = channel();
        let mut reader = Reader::new(&channel);
        const EACH: u64 = 20_000;
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let channel = &channel;
                scope.spawn(move || {
                    for n in 0..EACH {
                        let place = Place {
                            fd: 2,
                            path: b"a path",
                        };
                        channel.tell(Kind::Opened, 1, place, (thread, n), 3);
                        if n % 500 == 0 {
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    }
                });
            }
            let (mut last, mut told, end) = ([None; 4], 0, soon());
            // Events are lost if the writers are faster than the reader, whatever they tell.
            while told + reader.lost() < 4 * EACH {
                // The event of a thread that loses its processor meanwhile is passed as lost.
                let Some(event) = reader.next_until(Instant::now() + Duration::from_millis(10))
                else {
                    assert!(Instant::now() < end, "no event within a minute");
                    continue;
                };
                told += 1;
                let at = &mut last[event.id.0 as usize];
                assert!(
                    at.is_none_or(|at| at < event.id.1),
                    "{event:?} after {at:?}"
                );
                *at = Some(event.id.1);
                assert_eq!(event.path, b"a path");
            }
            assert_eq!(told + reader.lost(), 4 * EACH);
        });
        assert_eq!(reader.next_until(Instant::now()), None);
    }

    #[test]
    fn there_is_room_until_the_reader_is_behind() {
        let channel = channel();
        let mut reader = Reader::new(&channel);
        for id in [(1, 2), (3, 4)] {
            let mut told = 0;
            while channel.has_room() {
                let pages = [3; PATH_MAX];
                let part = Missing {
                    start: told,
                    end: u64::MAX,
                    pages: &pages,
                };
                channel.tell_missing(1, id, part);
                told += 1;
            }
            assert!(told > 1000 && told < SLOTS as u64);
            for n in 0..told {
                let event = reader.next_until(soon()).unwrap();
                let part = event.missing();
                assert_eq!((event.id, part.start, part.end), (id, n, u64::MAX));
                assert_eq!(part.pages, [3; PATH_MAX]);
            }
            assert_eq!(reader.lost(), 0);
        }
    }

    #[test]
    fn programs_do_not_pause_for_long_if_nothing_is_read() {
        let channel = channel();
        let mut reader = Reader::new(&channel);
        for _ in 0..2 {
            channel.tell(Kind::Opened, 1, Place::NONE, (0, 0), 3);
            let pauses = (0..1_000_000).take_while(|_| channel.may_pause()).count();
            assert!((1..1000).contains(&pauses), "{pauses}");
            assert!(reader.next_until(soon()).is_some());
        }
        assert!(channel.may_pause());
    }

    #[test]
    fn an_event_is_handled_when_the_next_one_is_asked_for() {
        let channel = channel();
        let mut reader = Reader::new(&channel);
        let event = channel.tell_unmapping(1, 4096..8192);
        assert!(!channel.is_handled(event));
        let read = reader.next_until(soon()).unwrap();
        let read = (read.kind, read.time, read.stats);
        assert_eq!(read, (Kind::Unmapping, 4096, 8192));
        assert!(!channel.is_handled(event));
        assert_eq!(reader.next_until(Instant::now()), None);
        assert!(channel.is_handled(event));
    }

    #[test]
    fn a_long_path_is_told_of_in_parts() {
        let channel = channel();
        let mut reader = Reader::new(&channel);
        let path: Vec<u8> = (0..2 * PATH_MAX + 7).map(|n| n as u8).collect();
        let place = Place { fd: 4, path: &path };
        channel
            .tell_surveyed(1, place, (3, 4), (-5, u32::MAX - 6), [0, 1])
            .unwrap();
        channel.tell_directory(1, &path[..PATH_MAX + 1], (3, 4));
        for kind in [Kind::Surveyed, Kind::Directory] {
            let mut told = Vec::new();
            let last = loop {
                let event = reader.next_until(soon()).unwrap();
                assert_eq!(event.id, (3, 4));
                if event.kind == Kind::Path {
                    assert_eq!(event.time, told.len() as u64);
                }
                told.extend_from_slice(&event.path);
                if event.kind != Kind::Path {
                    break event;
                }
            };
            assert_eq!(last.kind, kind);
            if kind == Kind::Surveyed {
                assert_eq!((last.descriptor(), last.birth()), (-5, u32::MAX - 6));
            }
            assert_eq!(told, path[..told.len()]);
            assert_eq!(
                told.len() % PATH_MAX,
                if kind == Kind::Surveyed { 7 } else { 1 }
            );
        }
    }

    #[test]
    fn an_event_that_was_withdrawn_is_not_read() {
        let channel = channel();
        let place = Place { fd: -1, path: b"" };
        let tell = |inode| {
            channel
                .tell_surveyed(1, place, (0, inode), (3, 0), [0, 1])
                .unwrap()
        };
        let numbers = [tell(10), tell(11), tell(12)];
        assert!(channel.withdraw(numbers[1]));
        assert!(!channel.withdraw(numbers[1]));
        let mut reader = Reader::new(&channel);
        let mut read = Vec::new();
        reader.read_after(Duration::ZERO, soon(), |event| read.push(event.id.1));
        assert_eq!((read, reader.lost()), (vec![10, 12], 0));
        assert!(!channel.withdraw(numbers[0]));
        // The slot has another event.
        for inode in 0..SLOTS as u64 {
            tell(inode);
        }
        assert!(!channel.withdraw(numbers[2]));
    }

    #[test]
    fn the_reader_does_not_wait_if_all_events_were_withdrawn() {
        let channel = channel();
        let number = channel.tell_surveyed(1, Place::NONE, (0, 1), (3, 0), [0, 1]);
        assert!(channel.withdraw(number.unwrap()));
        channel.wake();
        let long = Duration::from_secs(600);
        let mut reader = Reader::new(&channel);
        ends(|| {
            let never = |event: &Event| panic!("{event:?}");
            reader.read_after(long, Instant::now() + long, never);
        });
    }

    #[test]
    fn a_writer_that_was_killed_is_passed_over() {
        let channel = channel();
        channel.0.head.0.fetch_add(1, Ordering::Relaxed);
        let place = Place { fd: 5, path: b"" };
        channel.tell(Kind::Opened, 1, place, (0, 0), 3);
        let mut reader = Reader::new(&channel);
        assert_eq!(reader.next_until(soon()).unwrap().fd, 5);
        assert_eq!(reader.lost(), 1);
        assert_eq!(reader.next_until(Instant::now()), None);
    }

    #[test]
    fn the_last_events_are_read_although_a_writer_before_them_was_killed() {
        let channel = channel();
        let mut reader = Reader::new(&channel);
        let tell = |n| channel.tell_unmapping(n, 0..1);
        tell(1);
        channel.0.head.0.fetch_add(1, Ordering::Relaxed);
        let last = (2..100).map(tell).last().flatten();
        let mut read = Vec::new();
        reader.drain(soon(), |event| read.push(event.tid));
        assert_eq!((read, reader.lost()), ((1..100).collect(), 1));
        assert!(channel.is_handled(last));
        // There is no time for these.
        (0..3).map(tell).for_each(drop);
        reader.drain(Instant::now(), |event| panic!("{event:?}"));
        assert_eq!(reader.lost(), 4);
    }

    #[test]
    fn a_reader_that_was_overtaken_continues_with_later_events() {
        let channel = channel();
        let count = 3 * SLOTS as u64;
        for n in 0..count {
            channel.tell(Kind::Opened, 1, Place::NONE, (0, n), 3);
        }
        let mut reader = Reader::new(&channel);
        let mut read = 0;
        let mut last = 0;
        while let Some(event) = reader.next_until(Instant::now()) {
            (read, last) = (read + 1, event.id.1);
        }
        assert_eq!((last, read + reader.lost()), (count - 1, count));
    }

    /// Reads in another thread. A reader that does not return ends the test program.
    fn ends(read: impl FnOnce() + Send) {
        let (to, ended) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                read();
                let _ = to.send(());
            });
            if ended.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                std::process::abort();
            }
        });
    }

    #[test]
    fn the_reader_ends_whatever_was_written_into_the_memory() {
        const ANY: [u64; 6] = [0, 1, SLOTS as u64, 1 << 63, u64::MAX - 1, u64::MAX];
        for head in ANY {
            for mark in ANY {
                for next in ANY {
                    let channel = channel();
                    let memory = &*channel.0;
                    memory.head.0.store(head, Ordering::Relaxed);
                    let marks = memory.slots.iter().map(|slot| &slot.mark);
                    marks.for_each(|it| it.store(mark, Ordering::Relaxed));
                    let mut reader = Reader::new(&channel);
                    reader.next = next;
                    ends(|| {
                        for _ in 0..4 {
                            reader.next_until(Instant::now() + Duration::from_micros(100));
                        }
                    });
                    channel.tell(Kind::Opened, 1, Place::NONE, (0, 0), 3);
                }
            }
        }
    }

    #[test]
    fn the_reader_goes_on_after_the_number_of_events_was_changed() {
        let numbers = [0, 1, 100, u64::MAX / 2, u64::MAX - 5];
        for (number, is_drained) in numbers.into_iter().flat_map(|it| [(it, false), (it, true)]) {
            let channel = channel();
            let mut reader = Reader::new(&channel);
            channel.tell(Kind::Opened, 1, Place::NONE, (0, 1), 3);
            assert!(reader.next_until(soon()).is_some());
            channel.0.head.0.store(number, Ordering::Relaxed);
            let tell = |n| channel.tell(Kind::Opened, 1, Place::NONE, (0, n), 3);
            (0..3 * SLOTS as u64).for_each(tell);
            let mut last = None;
            match is_drained {
                true => reader.drain(soon(), |event| last = Some(event.id.1)),
                false => {
                    let next = || reader.next_until(Instant::now());
                    last = std::iter::from_fn(next).last().map(|event| event.id.1);
                }
            }
            assert_eq!(last, Some(3 * SLOTS as u64 - 1));
        }
    }

    #[test]
    fn the_reader_does_not_use_the_processor_while_an_event_is_incomplete() {
        let channel = channel();
        channel.0.head.0.store(SLOTS as u64, Ordering::Relaxed);
        let mut reader = Reader::new(&channel);
        let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let (began, before) = (Instant::now(), Duration::try_from(used()).unwrap());
        while began.elapsed() < Duration::from_millis(100) {
            assert_eq!(reader.next_until(began + Duration::from_millis(100)), None);
        }
        let used = Duration::try_from(used()).unwrap() - before;
        assert!(used < began.elapsed() / 2, "{used:?}");
    }

    #[test]
    fn only_the_file_that_was_created_is_attached_to() {
        use std::os::fd::AsRawFd;
        let (mine, fd) = Channel::create(7).unwrap();
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let other = Channel::attach(path.as_ref(), 7).unwrap();
        other.count(3, 1000);
        let counts = Counts {
            stats: 3,
            nanoseconds: 1000,
        };
        assert_eq!(mine.counts(), counts);
        assert_eq!(Channel::attach(path.as_ref(), 8).unwrap_err(), Errno::INVAL);
        assert!(Channel::attach("/proc/self/exe".as_ref(), 7).is_err());
        assert!(Channel::attach("/nowhere".as_ref(), 7).is_err());
        // A file of the same size that has a name.
        let named = tempfile::NamedTempFile::new().unwrap();
        rustix::io::pwrite(&named, &7_u64.to_ne_bytes(), 0).unwrap();
        rustix::fs::ftruncate(&named, size_of::<Memory>() as u64).unwrap();
        assert_eq!(Channel::attach(named.path(), 7).unwrap_err(), Errno::INVAL);
    }

    #[test]
    fn no_fifo_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
        let watch = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::NONBLOCK).unwrap();
        rustix::fs::inotify::add_watch(&watch, &fifo, rustix::fs::inotify::WatchFlags::OPEN)
            .unwrap();
        assert_eq!(Channel::attach(&fifo, 7).unwrap_err(), Errno::INVAL);
        assert_eq!(rustix::io::read(&watch, &mut [0; 64]), Err(Errno::AGAIN));
    }
}
