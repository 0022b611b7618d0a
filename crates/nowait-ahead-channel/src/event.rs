//! An event, as words of shared memory.

/// The maximum length of a path in an event, in bytes. The event of a longer path is not sent.
pub const PATH_MAX: usize = (WORDS - HEADER) * 8;

/// The words of an event.
pub(crate) const WORDS: usize = 30;
const HEADER: usize = 4;

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory was opened, and has the descriptor `fd`.
    Opened,
    /// A directory is about to be listed by its path.
    Listing,
    /// A tree is about to be walked, with a stat(2) of each entry: nftw(3), fts_open(3).
    Walking,
    /// A directory of such a walk was entered.
    Entered,
    /// A call of stat(2) waited for the disk.
    Slow,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The kind.
    pub kind: Kind,
    /// The process.
    pub pid: u32,
    /// The descriptor in that process, or −1.
    pub fd: i32,
    /// The device and inode number (`st_dev`, `st_ino`), or zeroes if they are not known.
    pub id: (u64, u64),
    /// The path, absolute or relative to the working directory of the process. Empty if `fd` says which file it is.
    pub path: Vec<u8>,
}

impl Kind {
    const ALL: [Kind; 5] = [
        Kind::Opened,
        Kind::Listing,
        Kind::Walking,
        Kind::Entered,
        Kind::Slow,
    ];
}

/// Encodes an event. `None` if the path is too long.
pub(crate) fn encode(
    kind: Kind,
    pid: u32,
    fd: i32,
    id: (u64, u64),
    path: &[u8],
) -> Option<[u64; WORDS]> {
    let mut words = [0; WORDS];
    words[0] = kind as u64 | (path.len() as u64) << 8 | u64::from(pid) << 32;
    words[1] = u64::from(fd.cast_unsigned());
    (words[2], words[3]) = id;
    if path.len() > PATH_MAX {
        return None;
    }
    for (word, bytes) in words[HEADER..].iter_mut().zip(path.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(whole);
    }
    Some(words)
}

/// Decodes an event. `None` if the words are those of no event: any program may write into the memory.
pub(crate) fn decode(words: &[u64; WORDS]) -> Option<Event> {
    let len = (words[0] >> 8) as usize & 0xff_ffff;
    let kind = *Kind::ALL.get((words[0] & 0xff) as usize)?;
    let bytes = words[HEADER..].iter().flat_map(|word| word.to_ne_bytes());
    let path: Vec<u8> = bytes.take(len).collect();
    (path.len() == len).then_some(Event {
        kind,
        pid: (words[0] >> 32) as u32,
        fd: (words[1] as u32).cast_signed(),
        id: (words[2], words[3]),
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
                let words = encode(kind, u32::MAX, -1, (3, u64::MAX), &path).unwrap();
                let event = Event {
                    kind,
                    pid: u32::MAX,
                    fd: -1,
                    id: (3, u64::MAX),
                    path,
                };
                assert_eq!(decode(&words), Some(event));
            }
        }
        assert_eq!(encode(Kind::Slow, 0, 0, (0, 0), &[1; PATH_MAX + 1]), None);
    }

    #[test]
    fn words_that_are_no_event_are_refused() {
        assert_eq!(decode(&[u64::MAX; WORDS]), None);
        let mut words = [0; WORDS];
        words[0] = 5;
        assert_eq!(decode(&words), None);
        words[0] = (PATH_MAX as u64 + 1) << 8;
        assert_eq!(decode(&words), None);
    }
}
