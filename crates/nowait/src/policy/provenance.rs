//! The origin of the bytes of a read.

use nowait_residency::pages;

/// The origin of a read's bytes, as far as it is known. The three counts add up to the number of
/// bytes read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Provenance {
    /// Bytes returned by the page cache without a wait. In eager mode they include bytes of a fast
    /// device, if the readahead that the `NOWAIT` read started finished before that read returned
    /// (kernels since about 6.12). Strict mode queries residency before the read.
    pub cached: usize,
    /// Bytes read from the device.
    ///
    /// Before a read of several pages that is not a hit goes to the engine, its resident pages are
    /// counted with mincore(2). That takes some microseconds, on a read that waits for the device.
    pub device: usize,
    /// Bytes of unknown origin. mincore(2) does not report the true residency of files that the
    /// process neither owns nor may write to. Resident pages are not counted for reads of several
    /// pages that were submitted in a batch.
    pub unknown: usize,
    /// The thread that made the last system call of the read.
    pub served_by: ServedBy,
}

impl Provenance {
    /// The provenance of `n` bytes from `origin`.
    pub(crate) fn of(n: usize, origin: Origin) -> Provenance {
        let mut provenance = Provenance::default();
        provenance.add(n, origin);
        provenance
    }

    /// Adds `n` bytes from `origin`.
    pub(crate) fn add(&mut self, n: usize, origin: Origin) {
        match origin {
            Origin::Cache => self.cached += n,
            Origin::Device => self.device += n,
            Origin::Unknown => self.unknown += n,
        }
    }
}

/// The thread or ring that served an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ServedBy {
    /// The calling thread.
    #[default]
    Caller,
    /// The io_uring ring.
    Ring,
    /// A worker thread of the engine.
    Worker,
}

/// The origin of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Cache,
    Device,
    Unknown,
}

/// The moment at which the result of a kernel read arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The result was there when the submission returned. The kernel did not wait.
    CompletedInline,
    /// The result arrived after the submission, which looked into the page cache and did not find
    /// all bytes.
    Later,
    /// A worker or a kernel thread looked into the page cache, and did not report the result.
    Indeterminate,
}

/// The facts about one kernel read that determine its origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// The number of bytes that it returned.
    pub(crate) bytes: usize,
    /// True if the file is open with O_DIRECT.
    pub(crate) direct: bool,
    /// The offset of the read, if it has one and the file has a page cache.
    pub(crate) cached_at: Option<u64>,
    /// True if a `NOWAIT` read did not find the first of these bytes.
    pub(crate) missed: bool,
    /// True if `NOWAIT` reads are known to work on this file.
    pub(crate) nowait_works: bool,
    pub(crate) arrival: Arrival,
}

/// Returns the origin of the bytes of one kernel read.
///
/// | read | origin |
/// |---|---|
/// | of an O_DIRECT file | device |
/// | complete at submission, of a file that takes NOWAIT, not missed before | page cache |
/// | of at most one page that was missed before | device |
/// | of at most one page that was not complete at submission, of a file that takes NOWAIT | device |
/// | any other | unknown |
///
/// If a read was missed before and is complete at submission, the device finished within the
/// submission. For files that refuse NOWAIT, some kernels (6.1) read at submission and wait there.
/// A read of several pages may find some of them in the page cache. A read that is not aligned
/// touches two pages, even if it is short.
pub(crate) fn origin(read: Read) -> Origin {
    if read.direct {
        return Origin::Device;
    }
    let Some(at) = read.cached_at else {
        return Origin::Unknown;
    };
    let one_page = pages(at, read.bytes as u64) == 1;
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
    use crate::sys::process::page_size;
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
                cached_at: cacheable.then_some(page as u64),
                missed,
                nowait_works,
                arrival,
            };
            assert_eq!(origin(read), expected, "{read:?}");
            // Half of a page, and two halves of pages.
            if cacheable && bytes == page && expected == Device {
                let cached_at = Some(page as u64 / 2);
                let two = Read { cached_at, ..read };
                assert_eq!(origin(two), Unknown, "{two:?}");
                let bytes = page / 2;
                assert_eq!(origin(Read { bytes, ..two }), Device);
            }
        }
    }
}
