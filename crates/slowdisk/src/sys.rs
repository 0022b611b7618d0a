//! System calls without a safe wrapper elsewhere: ioctls of loop devices and files, mincore, and
//! descriptor tables.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode, Setter, Updater, opcode};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const LOOP_CONFIGURE: Opcode = 0x4C0A;
const LOOP_CLR_FD: Opcode = 0x4C01;
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;
const BLKFLSBUF: Opcode = opcode::none(0x12, 97);
/// `EXT4_IOC_SHUTDOWN`. xfs (`XFS_IOC_GOINGDOWN`) and f2fs have the same number.
const FS_IOC_SHUTDOWN: Opcode = opcode::read::<u32>(b'X', 125);
const FS_IOC_FIEMAP: Opcode = opcode::read_write::<FiemapHeader>(b'f', 11);

const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// Gives the calling thread its own descriptor table, which has only standard input, output and
/// error. Threads that it starts share the new table.
///
/// Only those threads may use and close descriptors that are opened after this call.
pub(crate) fn leave_descriptor_table() -> io::Result<()> {
    // SAFETY: close_range with CLOSE_RANGE_UNSHARE closes copies in a table made for this thread.
    // Assumption: the thread owns no open file, because it was just started. Objects of other
    // threads refer to their own table, in which nothing is closed.
    let done = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// `LOOP_CTL_GET_FREE`: the number of a free loop device. The kernel adds one if there is none.
pub(crate) fn free_loop_device(control: &File) -> io::Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument and touches no memory of the process.
    let number = unsafe { ioctl::ioctl(control, ReturnedNumber::<LOOP_CTL_GET_FREE>)? };
    u32::try_from(number).map_err(io::Error::other)
}

/// `LOOP_CONFIGURE`: attaches `backing` to the loop device. It is detached when the last user
/// closes the device.
pub(crate) fn configure_loop(
    device: &File,
    backing: &File,
    direct: bool,
    sector: u32,
) -> io::Result<()> {
    let mut flags = LO_FLAGS_AUTOCLEAR;
    if direct {
        flags |= LO_FLAGS_DIRECT_IO;
    }
    let config = LoopConfig {
        fd: backing.as_raw_fd() as u32,
        block_size: sector,
        info: LoopInfo64 {
            numbers: [0; 5],
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: LOOP_CONFIGURE reads one struct loop_config, whose layout LoopConfig has.
    unsafe { ioctl::ioctl(device, Setter::<LOOP_CONFIGURE, _>::new(config))? };
    Ok(())
}

/// `LOOP_CLR_FD`: detaches the backing file when the last user has closed the device.
pub(crate) fn clear_loop(device: &File) -> io::Result<()> {
    // SAFETY: LOOP_CLR_FD takes no argument and touches no memory of the process.
    unsafe { ioctl::ioctl(device, ReturnedNumber::<LOOP_CLR_FD>)? };
    Ok(())
}

/// `BLKFLSBUF`: writes the device's own page cache back and drops it.
pub(crate) fn flush_buffers(device: &File) -> io::Result<()> {
    // SAFETY: BLKFLSBUF takes no argument and touches no memory of the process.
    unsafe { ioctl::ioctl(device, ReturnedNumber::<BLKFLSBUF>)? };
    Ok(())
}

/// `EXT4_IOC_SHUTDOWN`: nothing more is written to the device, and each further operation on the
/// filesystem fails. The log is written before if `flush` is true. `root` is any file on the
/// filesystem.
pub(crate) fn shut_down(root: &File, flush: bool) -> io::Result<()> {
    const LOGFLUSH: u32 = 1;
    const NOLOGFLUSH: u32 = 2;
    let how = if flush { LOGFLUSH } else { NOLOGFLUSH };
    // SAFETY: the call reads one u32, and touches no other memory of the process.
    unsafe { ioctl::ioctl(root, Setter::<FS_IOC_SHUTDOWN, u32>::new(how))? };
    Ok(())
}

/// `FS_IOC_FIEMAP`: at most [`FIEMAP_BATCH`] extents of a file from byte `start` on.
pub(crate) fn fiemap(file: BorrowedFd<'_>, start: u64) -> io::Result<Vec<FiemapExtent>> {
    const FIEMAP_FLAG_SYNC: u32 = 1;
    let mut map = Fiemap {
        header: FiemapHeader {
            start,
            length: u64::MAX - start,
            flags: FIEMAP_FLAG_SYNC,
            mapped_extents: 0,
            extent_count: FIEMAP_BATCH as u32,
            reserved: 0,
        },
        extents: [FiemapExtent::default(); FIEMAP_BATCH],
    };
    // SAFETY: FS_IOC_FIEMAP reads a struct fiemap and writes it and extent_count extents behind it,
    // for which Fiemap has room.
    unsafe { ioctl::ioctl(file, Updater::<FS_IOC_FIEMAP, _>::new(&mut map))? };
    let found = map.header.mapped_extents as usize;
    Ok(map.extents[..found.min(FIEMAP_BATCH)].to_vec())
}

/// mincore(2): returns true if a page of the file is in the page cache.
pub(crate) fn any_resident(file: &File) -> io::Result<bool> {
    /// The number of bytes for each call.
    const PIECE: u64 = 1 << 30;
    let len = file.metadata()?.len();
    let page = rustix::param::page_size();
    let mut told = vec![0_u8; (len.min(PIECE) as usize).div_ceil(page)];
    for start in (0..len).step_by(PIECE as usize) {
        let size = (len - start).min(PIECE) as usize;
        // SAFETY: a new mapping at an address of the kernel's choice, which nothing accesses;
        // mincore writes a byte for each of its pages, for which `told` has room, and it is
        // unmapped once.
        let asked = unsafe {
            let nowhere = std::ptr::null_mut();
            let at = mmap(
                nowhere,
                size,
                ProtFlags::empty(),
                MapFlags::SHARED,
                file,
                start,
            )?;
            let asked = libc::mincore(at, size, told.as_mut_ptr());
            let errno = io::Error::last_os_error();
            munmap(at, size)?;
            if asked == 0 { Ok(()) } else { Err(errno) }
        };
        asked?;
        if told[..size.div_ceil(page)].iter().any(|page| page & 1 == 1) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The maximum number of extents that one call of [`fiemap`] returns.
pub(crate) const FIEMAP_BATCH: usize = 64;

/// `struct fiemap_extent`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct FiemapExtent {
    pub(crate) logical: u64,
    pub(crate) physical: u64,
    pub(crate) length: u64,
    reserved64: [u64; 2],
    pub(crate) flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` without its extents.
#[repr(C)]
struct FiemapHeader {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

#[repr(C)]
struct Fiemap {
    header: FiemapHeader,
    extents: [FiemapExtent; FIEMAP_BATCH],
}

/// `struct loop_info64`.
#[repr(C)]
struct LoopInfo64 {
    /// Device, inode, device of the file, offset, size limit.
    numbers: [u64; 5],
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// An ioctl without argument whose return value is its result.
struct ReturnedNumber<const OPCODE: Opcode>;

// SAFETY: the argument is null, no memory is read or written, and the output is the return value.
unsafe impl<const OPCODE: Opcode> Ioctl for ReturnedNumber<OPCODE> {
    type Output = IoctlOutput;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut rustix::ffi::c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(
        out: IoctlOutput,
        _: *mut rustix::ffi::c_void,
    ) -> rustix::io::Result<IoctlOutput> {
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_the_kernels() {
        assert_eq!(size_of::<LoopInfo64>(), 232);
        assert_eq!(size_of::<LoopConfig>(), 304);
        assert_eq!(size_of::<FiemapHeader>(), 32);
        assert_eq!(size_of::<FiemapExtent>(), 56);
    }
}
