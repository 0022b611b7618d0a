//! Memory that a program lends. If it cannot be accessed, reads into it and writes of it fail with EFAULT, also
//! where the library copies.
#![allow(unsafe_code, reason = "lent memory")]

use std::path::Path;

use nowait::buffer::{Buffer, RawMemory, Source, UninitSlice};
use nowait::engine::{Engine, Options};
use nowait::op::{Op, Read, Readv, Write, Writev};
use nowait::read::{cached, try_cached};
use nowait::{File, Handle, IoBufExt, Mapping, OpenOptions};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use slowdisk::Filesystem;

use crate::common::cache::evict;
use crate::common::completions::{one, said};
use crate::common::drive::{each, name};
use crate::common::files::{pattern, patterned};
use crate::common::handles::handle_rw;
use crate::common::mounts::mounted;
use crate::common::shared_engine::each_shared;

const PAGE: usize = 4096;

/// Three pages that can be written, and then one with other permissions.
struct Pages(*mut u8);

impl Pages {
    fn new(last: MprotectFlags) -> Pages {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE;
        // SAFETY: a new mapping, where the kernel likes.
        unsafe {
            let start =
                rustix::mm::mmap_anonymous(std::ptr::null_mut(), 4 * PAGE, access, flags).unwrap();
            rustix::mm::mprotect(start.byte_add(3 * PAGE), PAGE, last).unwrap();
            Pages(start.cast())
        }
    }

    /// The last `len` bytes.
    fn end(&self, len: usize) -> RawMemory {
        // SAFETY: only operations access the memory.
        unsafe { RawMemory::new(self.0.add(4 * PAGE - len), len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        unsafe { rustix::mm::munmap(self.0.cast(), 4 * PAGE).unwrap() };
    }
}

/// Memory that is not mapped. mmap(2) maps nothing so low unless it is asked to.
fn unmapped() -> RawMemory {
    // SAFETY: nothing is mapped there.
    unsafe { RawMemory::new(0x10000 as *mut u8, PAGE) }
}

/// Each kind of memory that the kernel cannot write.
struct Unwritable {
    none: Pages,
    read_only: Pages,
}

impl Unwritable {
    fn new() -> Unwritable {
        Unwritable {
            none: Pages::new(MprotectFlags::empty()),
            read_only: Pages::new(MprotectFlags::READ),
        }
    }

    fn all(&self) -> [(&'static str, RawMemory); 6] {
        [
            ("not mapped", unmapped()),
            ("not mapped, misaligned", unmapped().skip(PAGE - 100)),
            ("no access", self.none.end(PAGE)),
            ("ends without access", self.none.end(PAGE + 1000)),
            ("read-only", self.read_only.end(PAGE)),
            ("ends read-only", self.read_only.end(2 * PAGE)),
        ]
    }
}

/// The file, buffered, and with O_DIRECT and reads of any alignment.
fn opened(path: &Path, engine: &Engine) -> [(&'static str, File); 2] {
    let mut options = OpenOptions::new();
    options.read(true).engine(engine);
    let buffered = options.blocking_open(path).unwrap();
    options.direct(true).unaligned(true);
    let direct = options.blocking_open(path).unwrap();
    [("buffered", buffered), ("direct", direct)]
}

#[test]
fn operations_with_memory_that_is_not_accessible_fail_with_efault() {
    let mount = mounted!(Filesystem::Ext4);
    let path = patterned(mount.path(), "file", 64 * PAGE);
    let process = Engine::process().unwrap();
    let unwritable = Unwritable::new();
    let reads = |file: &Handle, memory: RawMemory| -> Vec<(&str, Op)> {
        let boxed = || Box::new(memory) as Buffer;
        let valid = || Box::new(vec![0_u8; PAGE]) as Buffer;
        let limited = Box::new(memory.limit(memory.len() - 1)) as Buffer;
        vec![
            ("read", Read::raw(file, memory, Some(7)).into()),
            ("aligned", Read::raw(file, memory, Some(0)).into()),
            ("of a buffer", Read::new(file, boxed(), 7).into()),
            ("limited", Read::new(file, limited, 7).into()),
            ("readv", Readv::new(file, vec![valid(), boxed()], 0).into()),
        ]
    };
    each(Options::new(), |engine| {
        for (kind, file) in opened(&path, &process) {
            for (what, memory) in unwritable.all() {
                for is_cached in [true, false] {
                    let each_read = reads(file.handle(), memory).into_iter().enumerate();
                    for (i, (op, read)) in each_read {
                        // The kernel refuses a misaligned readv of the direct file.
                        if kind == "direct" && i == 4 {
                            continue;
                        }
                        match is_cached {
                            true => drop(std::fs::read(&path).unwrap()),
                            false => evict(&path),
                        }
                        let done = one(engine, read);
                        let which = format!("{}: {kind}, {op}, {what}", name(engine));
                        assert_eq!(said(&done), Err(libc::EFAULT), "{which}");
                    }
                }
            }
        }
        let file = handle_rw(&path);
        let source = || Box::new(unmapped()) as Source;
        let writes: [Op; 3] = [
            Write::raw(&file, unmapped(), Some(0)).into(),
            Write::new(&file, source(), 0).into(),
            Writev::new(&file, vec![source()], 0).into(),
        ];
        for write in writes {
            let done = one(engine, write);
            assert_eq!(said(&done), Err(libc::EFAULT), "{}", name(engine));
        }
    });
    assert!(std::fs::read(&path).unwrap() == pattern(0, 64 * PAGE));
}

#[test]
fn calls_with_memory_that_is_not_accessible_fail_with_efault() {
    let mount = mounted!(Filesystem::Ext4);
    let path = patterned(mount.path(), "file", 64 * PAGE);
    let unwritable = Unwritable::new();
    each_shared(Options::new(), |engine| {
        for (kind, file) in opened(&path, engine) {
            let mapping = Mapping::new(&file).unwrap();
            let loaded = mapping.blocking_load(0..64 * PAGE as u64).ok();
            for (what, memory) in unwritable.all() {
                let space = || UninitSlice::Raw(memory);
                let fails = |call: &str, result: nowait::Result<usize>| {
                    let errno = result.map_err(|error| error.errno());
                    assert_eq!(errno, Err(Some(libc::EFAULT)), "{call}: {kind}, {what}");
                };
                let read = pollster::block_on(file.read_at(memory, 7));
                fails("future", read.result);
                fails("blocking", file.blocking_read_at(space(), 7));
                let read = pollster::block_on(mapping.read_at(memory, 7));
                fails("future of a mapping", read.result);
                fails("blocking, mapping", mapping.blocking_read_at(space(), 7));
                // These return a leading part.
                if kind == "buffered" && !what.starts_with("ends") {
                    assert!(loaded.is_some() || mapping.why().is_some());
                    std::fs::read(&path).unwrap();
                    fails("cached", cached(&file, space(), 7).map(|_| 0));
                    let tried = try_cached(file.handle(), space(), 7);
                    fails("try_cached", tried.map(|_| 0));
                }
            }
        }
    });
}

#[test]
fn a_misaligned_direct_read_fills_lent_memory_with_the_bytes_of_the_file() {
    let mount = mounted!(Filesystem::Ext4);
    let size = (3 << 20) + 1234;
    let path = patterned(mount.path(), "file", size);
    let process = Engine::process().unwrap();
    let [_, (_, file)] = opened(&path, &process);
    each(Options::new(), |engine| {
        for (offset, len) in [(7, 100), (0, 70_001), (4095, 2 << 20), (1, size), (size, 5)] {
            let mut bytes = vec![0xEE_u8; len];
            // SAFETY: the vector is not accessed before the read is complete.
            let memory = unsafe { RawMemory::new(bytes.as_mut_ptr(), len) };
            let n = len.min(size - offset);
            let done = one(
                engine,
                Read::raw(file.handle(), memory, Some(offset as u64)),
            );
            assert_eq!(said(&done), Ok(n), "{}", name(engine));
            assert!(bytes[..n] == pattern(offset as u64, n), "{}", name(engine));
            assert!(bytes[n..].iter().all(|byte| *byte == 0xEE));
        }
    });
}
