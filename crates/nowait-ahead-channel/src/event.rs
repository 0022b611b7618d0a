//! An event, as words of shared memory.

/// The maximum length of a path in an event, in bytes. The event of a longer path is not sent.
/// Survey events split a long path over several events.
pub const PATH_MAX: usize = (WORDS - HEADER) * 8;

/// The words of an event.
pub(crate) const WORDS: usize = 39;
const HEADER: usize = 7;

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The program lists a directory, which has the descriptor `fd`. `time` is that of its opening.
    Opened,
    /// The program has listed [`MANY`](crate::MANY) names of a directory. `time` is 0.
    Large,
    /// A directory is about to be listed by its path.
    Listing,
    /// A tree is about to be walked, with a stat(2) of each entry: nftw(3), fts_open(3).
    Walking,
    /// A directory of such a walk was entered.
    Entered,
    /// A call of stat(2) took [`SLOW`](crate::SLOW) or longer, but less than
    /// [`SEEK`](crate::SEEK). The directory is that of the file.
    Slow,
    /// A call of stat(2) took [`SEEK`](crate::SEEK) or longer. The directory is that of the file.
    VerySlow,
    /// A file was opened for reading. `path` is the file, of any type. `time` is the time that the
    /// call took, in nanoseconds.
    File,
    /// A process has started.
    Started,
    /// A part of the path of the next [`Directory`](Kind::Directory),
    /// [`Surveyed`](Kind::Surveyed) or [`Used`](Kind::Used) event of this thread and `id`, whose own
    /// path follows it. `time` is its offset in the path.
    Path,
    /// The path of the directory `id`, for a [`Surveyed`](Kind::Surveyed) that follows.
    Directory,
    /// A part of the file `id`, which is open, was surveyed before the program could read it.
    /// [`Event::missing`] returns the pages of the part that are not resident.
    Missing,
    /// A file was opened. `pages` are not resident, or its parts follow as [`Missing`](Kind::Missing).
    /// `path` and `fd` are those of the call that has opened it, `time` has its descriptor
    /// ([`Event::descriptor`]) and its birth ([`Event::birth`]), and `stats` is the [`key`] of the directory to which the path
    /// is relative.
    Surveyed,
    /// The bytes from `time` to `stats` of a file were used, or the file was opened if there are
    /// none. `path` is absolute. A long one is split as that of a [`Surveyed`](Kind::Surveyed).
    Used,
    /// A path was looked up, also one that does not exist. `path` is as that of
    /// [`Used`](Kind::Used), or relative to the directory whose [`key`] is `pages`.
    LookedUp,
    /// Many names of the directory `path` were looked up. As [`LookedUp`](Kind::LookedUp) otherwise.
    ManyLookedUp,
    /// The names of the directory `path` were listed.
    Listed,
    /// The program is about to unmap the addresses from `time` to `stats`, and waits until the event is
    /// [handled](crate::Channel::is_handled).
    Unmapping,
    /// The process has a filter of system calls (seccomp(2)), or is about to install one. The files that it opens from
    /// now on are not surveyed.
    Filtered,
    /// A file has got the name `path`: rename(2), link(2). `path`, `fd` and `stats` are as those of a
    /// [`Surveyed`](Kind::Surveyed).
    Named,
    /// The filesystem that the program unmounts at `path` is busy. The program waits until the event is
    /// [handled](crate::Channel::is_handled). `path` is empty if it is not known.
    Unmounting,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The kind.
    pub kind: Kind,
    /// The thread. proc(5) has a directory of its ID, as of a process.
    pub tid: u32,
    /// The descriptor of a directory in that process, or −1 for its working directory.
    pub fd: i32,
    /// The device and inode number (`st_dev`, `st_ino`) of the directory. Each is 0 if it is not
    /// known.
    pub id: (u64, u64),
    /// The time in nanoseconds; see [`Channel::now`](crate::Channel::now). For files and surveys
    /// see [`Kind`].
    pub time: u64,
    /// The number of calls of stat(2) before. For surveys see [`Kind`].
    pub stats: u64,
    /// A bit for each of the first 63 pages of a file that is not resident. The highest bit is for
    /// all others. 0 if they are not sent in this way. For paths that were looked up see
    /// [`Kind`].
    pub pages: u64,
    /// The path, absolute or relative to `fd`. Empty if it is that directory itself. The bits of a
    /// missing part.
    pub path: Vec<u8>,
}

/// A part of a file that was surveyed, some or all of whose pages are not resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing<'a> {
    /// The offset of the first byte. A multiple of the page size.
    pub start: u64,
    /// The offset after the last byte.
    pub end: u64,
    /// A bit for each page that is not resident, from the lowest bit of the first byte on. If it is
    /// empty, no page is resident.
    pub pages: &'a [u8],
}

impl Event {
    /// The part of a file that a [`Kind::Missing`] reports.
    pub fn missing(&self) -> Missing<'_> {
        Missing {
            start: self.time,
            end: self.stats,
            pages: &self.path,
        }
    }

    /// The descriptor of the file that a [`Kind::Surveyed`] reports.
    pub fn descriptor(&self) -> i32 {
        (self.time as u32).cast_signed()
    }

    /// The [`birth`] of the file that a [`Kind::Surveyed`] reports. 0 if its filesystem has no birth time.
    pub fn birth(&self) -> u32 {
        (self.time >> 32) as u32
    }
}

/// The place of a directory, as the program's system call names it: a descriptor or −1, and a path
/// that may be empty.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The descriptor, or −1 for the working directory.
    pub fd: i32,
    /// The path.
    pub path: &'a [u8],
}

/// A number for a file with this device and inode number, by which other files hardly have the same
/// one. It is not 0.
pub fn key((device, inode): (u64, u64)) -> u64 {
    // The multiplier is 2^64 divided by the golden ratio.
    (inode ^ device.rotate_left(32))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .max(1)
}

/// A number for the birth time of a file (statx(2)), in seconds and nanoseconds, by which it is told from a later file with the
/// same inode number. 0 if there is none.
pub fn birth(time: Option<(i64, u32)>) -> u32 {
    let number = |(seconds, nanoseconds): (i64, u32)| {
        let time = seconds.cast_unsigned() ^ u64::from(nanoseconds) << 32;
        (time.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    };
    time.map_or(0, |time| number(time).max(1))
}

impl Place<'_> {
    /// No place: the event's id says which directory it is.
    pub const NONE: Place<'static> = Place { fd: -1, path: b"" };
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 21] = [
        Kind::Opened,
        Kind::Large,
        Kind::Listing,
        Kind::Walking,
        Kind::Entered,
        Kind::Slow,
        Kind::VerySlow,
        Kind::File,
        Kind::Started,
        Kind::Path,
        Kind::Directory,
        Kind::Missing,
        Kind::Surveyed,
        Kind::Used,
        Kind::LookedUp,
        Kind::ManyLookedUp,
        Kind::Listed,
        Kind::Unmapping,
        Kind::Filtered,
        Kind::Named,
        Kind::Unmounting,
    ];
}

/// An event that is written word by word. It has no memory for the words: a signal handler of the program may have a
/// small stack.
#[derive(Debug, PartialEq)]
pub(crate) struct Words<'a> {
    header: [u64; HEADER],
    path: &'a [u8],
}

/// Encodes an event. `None` if the path is too long. Within its callers it needs less of their stack.
#[inline(always)]
pub(crate) fn encode<'a>(
    kind: Kind,
    tid: u32,
    place: Place<'a>,
    id: (u64, u64),
    [time, stats, pages]: [u64; 3],
) -> Option<Words<'a>> {
    let path = place.path;
    if path.len() > PATH_MAX {
        return None;
    }
    let first = kind as u64 | (path.len() as u64) << 8 | u64::from(tid) << 32;
    let fd = u64::from(place.fd.cast_unsigned());
    let header = [first, fd, id.0, id.1, time, stats, pages];
    Some(Words { header, path })
}

impl Words<'_> {
    /// The words, at most [`WORDS`].
    #[inline(always)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        let word = |bytes: &[u8]| {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(whole)
        };
        let header = self.header.iter().copied();
        header.chain(self.path.chunks(8).map(word))
    }
}

/// Decodes an event. `None` if the words are those of no event: any program may write into the
/// memory.
pub(crate) fn decode(words: &[u64; WORDS]) -> Option<Event> {
    let len = (words[0] >> 8) as usize & 0xff_ffff;
    let kind = *Kind::ALL.get((words[0] & 0xff) as usize)?;
    let bytes = words[HEADER..].iter().flat_map(|word| word.to_ne_bytes());
    let path: Vec<u8> = bytes.take(len).collect();
    (path.len() == len).then_some(Event {
        kind,
        tid: (words[0] >> 32) as u32,
        fd: (words[1] as u32).cast_signed(),
        id: (words[2], words[3]),
        time: words[4],
        stats: words[5],
        pages: words[6],
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_after_they_were_encoded() {
        for kind in Kind::ALL {
            for len in [0, 1, 7, 8, 9, PATH_MAX] {
                let path: Vec<u8> = (0..len).map(|n| n as u8 | 1).collect();
                let place = Place {
                    fd: -1,
                    path: &path,
                };
                let numbers = [5, u64::MAX, 6];
                let encoded = encode(kind, u32::MAX, place, (3, u64::MAX), numbers).unwrap();
                let mut words = [u64::MAX; WORDS];
                let encoded: Vec<u64> = encoded.iter().collect();
                words[..encoded.len()].copy_from_slice(&encoded);
                let event = Event {
                    kind,
                    tid: u32::MAX,
                    fd: -1,
                    id: (3, u64::MAX),
                    time: 5,
                    stats: u64::MAX,
                    pages: 6,
                    path,
                };
                assert_eq!(decode(&words), Some(event));
            }
        }
        let long = Place {
            fd: 0,
            path: &[1; PATH_MAX + 1],
        };
        assert_eq!(encode(Kind::Slow, 0, long, (0, 0), [0; 3]), None);
    }

    #[test]
    fn words_that_are_no_event_are_refused() {
        assert_eq!(decode(&[u64::MAX; WORDS]), None);
        let mut words = [0; WORDS];
        words[0] = Kind::ALL.len() as u64;
        assert_eq!(decode(&words), None);
        words[0] = (PATH_MAX as u64 + 1) << 8;
        assert_eq!(decode(&words), None);
    }
}
