//! The alignment of memory, offset and length that O_DIRECT requires for a file, from statx(2).

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags};

use crate::error::{Error, ErrorKind, Result};
use crate::sys::cast::to_usize;

/// `STATX_WRITE_ATOMIC` (6.11), for which rustix has no name.
const WRITE_ATOMIC: StatxFlags = StatxFlags::from_bits_retain(0x1_0000);
/// `STATX_DIO_READ_ALIGN` (6.14).
const DIO_READ_ALIGN: StatxFlags = StatxFlags::from_bits_retain(0x2_0000);

/// The alignment that a file requires for reads and writes with O_DIRECT, in bytes.
///
/// From `STATX_DIOALIGN` (statx(2), Linux 6.1). A request that is not aligned is refused with
/// [`ErrorKind::Misaligned`] before the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Alignment {
    /// The alignment of the address of each piece of memory.
    pub memory: u32,
    /// The alignment of offset and length of a write, and of a read if the filesystem has no
    /// separate value.
    pub offset: u32,
    /// The alignment of offset and length of a read (`STATX_DIO_READ_ALIGN`, 6.14).
    pub read_offset: u32,
}

impl Alignment {
    /// An alignment that satisfies all known devices, for files of unknown requirements.
    pub(crate) const SAFE: Alignment = Alignment {
        memory: 4096,
        offset: 4096,
        read_offset: 4096,
    };

    /// Returns the alignment that O_DIRECT requires for this file. The file need not be open with
    /// O_DIRECT. `None` if the kernel or the filesystem does not report it, or the file does not
    /// support O_DIRECT.
    ///
    /// # Errors
    /// The errno of statx(2).
    ///
    /// ```
    /// let file = std::fs::File::open("Cargo.toml")?;
    /// match nowait::Alignment::of(&file)? {
    ///     Some(needed) => println!("offsets at multiples of {}", needed.offset),
    ///     None => println!("unknown"),
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn of(fd: impl AsFd) -> Result<Option<Alignment>> {
        let mask = StatxFlags::DIOALIGN | DIO_READ_ALIGN;
        let stat = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, mask)
            .map_err(|errno| Error::os("statx", errno))?;
        let known = StatxFlags::from_bits_retain(stat.stx_mask);
        let (memory, offset) = (stat.stx_dio_mem_align, stat.stx_dio_offset_align);
        let powers = memory.is_power_of_two() && offset.is_power_of_two();
        if !known.contains(StatxFlags::DIOALIGN) || !powers {
            return Ok(None);
        }
        let read_offset = match stat.stx_dio_read_offset_align {
            0 => offset,
            own if known.contains(DIO_READ_ALIGN) && own.is_power_of_two() => own,
            _ => offset,
        };
        Ok(Some(Alignment {
            memory,
            offset,
            read_offset,
        }))
    }

    /// The reason to refuse a request, or `None`. `pieces` are the addresses and lengths of its
    /// memory. A request without an offset uses the file's own position.
    pub(crate) fn refuses(
        self,
        reads: bool,
        offset: Option<u64>,
        pieces: impl Iterator<Item = (usize, usize)>,
    ) -> Option<ErrorKind> {
        let unit = if reads { self.read_offset } else { self.offset };
        // Alignments are powers of two. A division would take longer than the rest of this
        // function.
        let fits_in = |n: usize, unit: u32| n & (unit as usize).wrapping_sub(1) == 0;
        let mut len = 0;
        let mut fits = offset.is_none_or(|o| fits_in(to_usize(o), unit));
        for (address, piece) in pieces {
            fits &= piece == 0 || fits_in(address, self.memory);
            len += piece;
        }
        fits &= fits_in(len, unit);
        (!fits).then_some(ErrorKind::Misaligned {
            memory: self.memory,
            offset: unit,
        })
    }
}

/// The limits of writes with [`RwFlags::ATOMIC`](crate::RwFlags::ATOMIC) on one file. The length
/// must be a power of two from `min` to `max` bytes, and the offset a multiple of the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AtomicWrites {
    /// The smallest length, in bytes.
    pub min: u32,
    /// The largest length, in bytes.
    pub max: u32,
    /// The maximum number of buffers in a vectored write.
    pub buffers: u32,
}

impl AtomicWrites {
    /// Returns the limits of atomic writes on this file: `STATX_WRITE_ATOMIC` (statx(2), Linux
    /// 6.11). `None` if the file does not support them, or the kernel does not report it. The
    /// kernel then refuses such a write with [`ErrorKind::Unsupported`].
    ///
    /// # Errors
    /// The errno of statx(2).
    ///
    /// ```
    /// let file = std::fs::File::open("Cargo.toml")?;
    /// if let Some(atomic) = nowait::AtomicWrites::of(&file)? {
    ///     assert!(atomic.min <= atomic.max);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn of(fd: impl AsFd) -> Result<Option<AtomicWrites>> {
        let stat = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, WRITE_ATOMIC)
            .map_err(|errno| Error::os("statx", errno))?;
        let known = StatxFlags::from_bits_retain(stat.stx_mask).contains(WRITE_ATOMIC);
        Ok(
            (known && stat.stx_atomic_write_unit_max > 0).then_some(AtomicWrites {
                min: stat.stx_atomic_write_unit_min,
                max: stat.stx_atomic_write_unit_max,
                buffers: stat.stx_atomic_write_segments_max,
            }),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_offset_and_length_count() {
        let needed = Alignment {
            memory: 4,
            offset: 4096,
            read_offset: 512,
        };
        let refuses = |address, len, offset, reads| {
            needed.refuses(reads, offset, [(address, len)].into_iter())
        };
        assert_eq!(refuses(8, 4096, Some(8192), false), None);
        assert_eq!(refuses(8, 512, Some(1024), true), None);
        assert_eq!(refuses(8, 512, None, true), None);
        let write = Some(ErrorKind::Misaligned {
            memory: 4,
            offset: 4096,
        });
        let read = Some(ErrorKind::Misaligned {
            memory: 4,
            offset: 512,
        });
        assert_eq!(refuses(8, 512, Some(0), false), write);
        assert_eq!(refuses(8, 4096, Some(512), false), write);
        assert_eq!(refuses(2, 512, Some(0), true), read);
        assert_eq!(refuses(8, 100, Some(0), true), read);
        // The pieces of one request together fill its blocks.
        let halves = [(8, 256), (64, 256)];
        assert_eq!(needed.refuses(true, Some(0), halves.into_iter()), None);
    }
}
