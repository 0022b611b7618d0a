//! The origin of the bytes of a read.

use crate::sys::process::page_size;

/// Where a read's bytes came from, as far as it is known. The three counts add up to the bytes
/// that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// Bytes that the page cache gave without a wait. An eager read can't tell them from bytes of
    /// a device so fast that the readahead which the try itself started was done before the try
    /// was (kernels since about 6.12); a strict read has asked before.
    pub cached: usize,
    /// Bytes that were read from the device.
    ///
    /// A read of several pages that the page cache does not hold whole counts its resident pages by
    /// mincore(2) before it goes to the engine: some microseconds, on a read that waits for the device.
    pub device: usize,
    /// Bytes of unknown origin. mincore(2) does not tell the truth about files that the caller neither
    /// owns nor may write to. Reads of several pages that were submitted in a batch are not counted.
    pub unknown: usize,
    /// Who made the last system call for it.
    pub served_by: ServedBy,
}

impl Provenance {
    /// `n` bytes from `origin`.
    pub(crate) fn of(n: usize, origin: Origin) -> Provenance {
        let mut provenance = Provenance::default();
        provenance.add(n, origin);
        provenance
    }

    /// Counts `n` more bytes from `origin`.
    pub(crate) fn add(&mut self, n: usize, origin: Origin) {
        match origin {
            Origin::Cache => self.cached += n,
            Origin::Device => self.device += n,
            Origin::Unknown => self.unknown += n,
        }
    }
}

/// Who served an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ServedBy {
    /// The thread that asked.
    #[default]
    Caller,
    /// The io_uring ring.
    Ring,
    /// A worker thread of the engine.
    Worker,
}

/// Where some bytes came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Cache,
    Device,
    Unknown,
}

/// The moment at which the result of a kernel read was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// When the submission returned. The kernel waited for nothing.
    CompletedInline,
    /// After the submission. The submission looked into the page cache, and did not find everything.
    Later,
    /// Another thread looked into the page cache, a worker or a thread of the kernel's, and did not
    /// report what it found.
    Indeterminate,
}

/// The facts about one kernel read that its origin follows from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// The bytes that it returned.
    pub(crate) bytes: usize,
    /// The file is open with O_DIRECT.
    pub(crate) direct: bool,
    /// The file has a page cache, and the read has an offset.
    pub(crate) cacheable: bool,
    /// A `NOWAIT` read did not find the first of these bytes.
    pub(crate) missed: bool,
    /// `NOWAIT` reads are known to work on this file.
    pub(crate) nowait_works: bool,
    pub(crate) arrival: Arrival,
}

/// The origin of the bytes of one kernel read.
///
/// | read | origin |
/// |---|---|
/// | of an O_DIRECT file | device |
/// | complete at submission, of a file that takes NOWAIT, not missed before | page cache |
/// | of at most one page that was missed before | device |
/// | of at most one page that was not complete at submission, of a file that takes NOWAIT | device |
/// | any other | unknown |
///
/// A read that was missed before and is complete at submission came from a device that finished within
/// the submission. Of files that refuse NOWAIT, some kernels (6.1) read at submission, and wait there.
/// A read of several pages may find some of them.
pub(crate) fn origin(read: Read) -> Origin {
    let one_page = (1..=page_size()).contains(&read.bytes);
    if read.direct {
        return Origin::Device;
    }
    if !read.cacheable {
        return Origin::Unknown;
    }
    match read.arrival {
        Arrival::CompletedInline if !read.missed && read.nowait_works => Origin::Cache,
        _ if read.missed && one_page => Origin::Device,
        Arrival::Later | Arrival::CompletedInline if read.nowait_works && one_page => {
            Origin::Device
        }
        _ => Origin::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Arrival::{CompletedInline, Indeterminate, Later};
    use Origin::{Cache, Device, Unknown};

    #[test]
    fn the_origin_of_a_read() {
        let page = page_size();
        // (bytes, direct, cacheable, missed, nowait_works, arrival), origin
        let table = [
            ((page, true, false, false, true, CompletedInline), Device),
            (
                (10 * page, true, false, false, false, Indeterminate),
                Device,
            ),
            ((page, false, true, false, true, CompletedInline), Cache),
            (
                (10 * page, false, true, false, true, CompletedInline),
                Cache,
            ),
            ((0, false, true, false, true, CompletedInline), Cache),
            ((page, false, true, true, true, CompletedInline), Device),
            ((page, false, true, false, false, CompletedInline), Unknown),
            ((page, false, true, false, true, Later), Device),
            ((page + 1, false, true, false, true, Later), Unknown),
            ((0, false, true, false, true, Later), Unknown),
            ((page, false, true, false, false, Later), Unknown),
            ((page, false, true, true, false, Later), Device),
            ((page, false, true, true, true, Indeterminate), Device),
            ((page + 1, false, true, true, true, Indeterminate), Unknown),
            ((page, false, true, false, true, Indeterminate), Unknown),
            ((page, false, false, false, true, Later), Unknown),
        ];
        for ((bytes, direct, cacheable, missed, nowait_works, arrival), expected) in table {
            let read = Read {
                bytes,
                direct,
                cacheable,
                missed,
                nowait_works,
                arrival,
            };
            assert_eq!(origin(read), expected, "{read:?}");
        }
    }
}
