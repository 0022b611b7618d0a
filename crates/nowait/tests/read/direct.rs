//! O_DIRECT: its alignment is known before the kernel is asked. A misaligned read goes through aligned
//! memory if the file was opened for that. A read is short only at the end of the file. Also: the calls that
//! bring written data to the device.
#![allow(unsafe_code, reason = "a buffer for O_DIRECT")]

use nowait::buffer::UninitSlice;
use nowait::engine::Options;
use nowait::op::{Op, Read, Readv, SyncFileRange, SyncRange, Write, Writev};
use nowait::{Alignment, AtomicWrites, ErrorKind, Handle, IoBuf, IoBufMut, OpenOptions, RwFlags};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::OFlags;
use slowdisk::{Filesystem, TestMount};

use crate::common::cache::evict;
use crate::common::completions::{one, said};
use crate::common::drive::each;
use crate::common::files::patterned;
use crate::common::handles::{handle, handle_rw};
use crate::common::mounts::{ON_DISK, mounted};
use crate::common::samples::Sample;
use crate::common::shared_engine::each_shared;

const PAGE: usize = 4096;

/// Each filesystem on devices with small and with large sectors.
fn each_mount(test: impl Fn(&TestMount, &str)) {
    for filesystem in ON_DISK {
        for sector in [512, 4096] {
            slowdisk::require!(filesystem.available());
            let mount = TestMount::builder(filesystem).sector(sector).build();
            let name = format!("{} on sectors of {sector}", filesystem.name());
            test(&mount.expect("a fresh filesystem"), &name);
        }
    }
}

/// Memory that begins at this distance from the start of a page.
struct Memory {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Memory {
    fn new(shift: usize, len: usize) -> Memory {
        let memory = vec![0xEE; len + shift + PAGE];
        let start = memory.as_ptr().align_offset(PAGE) + shift;
        Memory { memory, start, len }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

impl IoBuf for Memory {
    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }
}

impl IoBufMut for Memory {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        self.bytes_mut().into()
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

#[test]
fn what_o_direct_demands_is_known_and_is_enough() {
    each_mount(|mount, name| {
        let sample = Sample::new(mount.path(), "file", 64 << 10);
        let mut options = OpenOptions::new();
        options.read(true);
        let buffered = options.blocking_open(&sample.path).unwrap();
        assert_eq!(buffered.handle().alignment(), None, "{name}");
        let file = options.direct(true).blocking_open(&sample.path).unwrap();
        let Some(needed) = file.handle().alignment() else {
            // Kernels before 6.1 do not report it; btrfs does not on 6.18 either.
            if !name.starts_with("btrfs") {
                slowdisk::skip_or_fail("a kernel that knows STATX_DIOALIGN");
            }
            return;
        };
        assert_eq!(Some(needed), Alignment::of(&buffered).unwrap(), "{name}");
        let (unit, at) = (needed.read_offset as usize, u64::from(needed.read_offset));
        let mut memory = Memory::new(needed.memory as usize, unit);
        let n = file.blocking_read_at(memory.bytes_mut(), at).unwrap();
        assert_eq!(memory.bytes(), &sample.content[unit..][..n], "{name}");
        assert_eq!(n, unit, "{name}: {needed:?}");
    });
}

#[test]
fn a_misaligned_request_is_refused_before_the_kernel_sees_it() {
    let mount = mounted!(Filesystem::Ext4);
    let path = patterned(mount.path(), "file", 4 * PAGE);
    let open = |access| {
        let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, rustix::fs::Mode::empty());
        Handle::new(fd.unwrap()).unwrap()
    };
    // The kernel would return EBADF: the first is write-only, the second read-only.
    let (to_read, to_write) = (open(OFlags::WRONLY), open(OFlags::RDONLY));
    if to_read.alignment().is_none() {
        return slowdisk::skip_or_fail("a kernel that knows STATX_DIOALIGN");
    }
    let room = |shift, len| Box::new(Memory::new(shift, len));
    each(Options::new(), |engine| {
        let ops: Vec<(&str, Op)> = vec![
            ("offset", Read::new(&to_read, room(0, PAGE), 1).into()),
            ("length", Read::new(&to_read, room(0, 100), 0).into()),
            ("memory", Read::new(&to_read, room(1, PAGE), 0).into()),
            (
                "memory of one piece",
                Readv::new(&to_read, vec![room(0, PAGE), room(3, PAGE)], 0).into(),
            ),
            (
                "a stream's length",
                Read::stream(&to_read, room(0, 7)).into(),
            ),
            ("write", Write::new(&to_write, room(0, PAGE), 100).into()),
            (
                "writev",
                Writev::new(&to_write, vec![room(0, PAGE), room(0, 5)], 0).into(),
            ),
        ];
        for (what, op) in ops {
            let done = one(engine, op);
            let error = done.result.unwrap_err();
            let is_so = matches!(error.kind(), ErrorKind::Misaligned { .. });
            assert!(is_so, "{what}: {error}");
            assert!(error.to_string().contains("multiple of"), "{error}");
            assert_eq!(error.errno(), Some(libc::EINVAL), "{what}");
        }
        // These are aligned: the kernel is asked and returns its own error.
        let done = one(engine, Read::new(&to_read, room(0, PAGE), 0));
        assert_eq!(said(&done), Err(libc::EBADF));
        let done = one(engine, Write::new(&to_write, room(0, PAGE), 0));
        assert_eq!(said(&done), Err(libc::EBADF));
        assert_eq!(engine.in_flight(), 0);
    });
    each_shared(Options::new(), |engine| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).direct(true);
        let file = options.engine(engine).blocking_open(&path).unwrap();
        let kinds = [
            pollster::block_on(file.read_at(*room(0, PAGE), 1))
                .result
                .map(drop),
            pollster::block_on(file.write_at(*room(0, PAGE), 1))
                .result
                .map(drop),
            file.blocking_read_at(room(0, 5).bytes_mut(), 0).map(drop),
            file.blocking_write_at(room(0, 5).bytes(), 0).map(drop),
        ];
        for result in kinds {
            let kind = result.unwrap_err().kind();
            assert!(matches!(kind, ErrorKind::Misaligned { .. }), "{kind:?}");
        }
        // An empty buffer needs no alignment.
        assert_eq!(file.blocking_read_at(&mut [0_u8; 0], 0).unwrap(), 0);
        assert_eq!(engine.in_flight(), 0);
    });
}

#[test]
fn a_file_that_ends_within_a_block_is_read_to_its_end() {
    each_mount(|mount, name| {
        for size in [0, 1, 511, 512, 513, 1024, 4095, 4096, 4608, 8191, 70_000] {
            let sample = Sample::new(mount.path(), &format!("file-{size}"), size);
            each_shared(Options::new(), |engine| {
                let mut options = OpenOptions::new();
                options.read(true).direct(true).engine(engine);
                let file = options.blocking_open(&sample.path).unwrap();
                let read = file.read_at(Memory::new(0, 20 * PAGE), 0);
                let (n, memory) = pollster::block_on(read).into_result().unwrap();
                assert_eq!(&memory.bytes()[..n], &sample.content[..], "{name}");
                let mut memory = Memory::new(0, 20 * PAGE);
                let n = file.blocking_read_at(memory.bytes_mut(), 0).unwrap();
                assert_eq!(&memory.bytes()[..n], &sample.content[..], "{name}");
            });
        }
    });
}

/// Reads of a file of odd size. Some are beyond its end, some larger than the aligned memory.
fn a_read() -> impl Strategy<Value = (u64, usize, usize)> {
    let offset = prop_oneof![0..20_000_u64, 2_990_000..3_010_000_u64, 0..3_100_000_u64];
    let len = prop_oneof![0..600_usize, 4000..4200_usize, 0..2_500_000_usize];
    (offset, len, prop_oneof![Just(0), 0..600_usize])
}

#[test]
fn misaligned_reads_bring_what_pread_brings() {
    each_mount(|mount, name| {
        let sample = Sample::new(mount.path(), "file", 3_001_234);
        each_shared(Options::new(), |engine| {
            let mut options = OpenOptions::new();
            options.read(true).direct(true).unaligned(true);
            let file = options.engine(engine).blocking_open(&sample.path).unwrap();
            let config = Config {
                failure_persistence: None,
                ..Config::with_cases(Config::default().cases / 8 + 1)
            };
            let checked = TestRunner::new(config).run(&a_read(), |(offset, len, shift)| {
                let content = &sample.content;
                let from = content.len().min(offset as usize);
                let expected = &content[from..content.len().min(from + len)];
                let read = file.read_at(Memory::new(shift, len), offset);
                let done = pollster::block_on(read);
                let all = done.provenance.device;
                let (n, memory) = done.into_result().unwrap();
                prop_assert_eq!(n, expected.len());
                prop_assert!(&memory.bytes()[..n] == expected, "future: {offset} {len}");
                prop_assert_eq!(all, n);
                let rest = &memory.bytes()[n..];
                prop_assert!(rest.iter().all(|b| *b == 0xEE), "beyond: {offset} {len}");
                let mut memory = Memory::new(shift, len);
                let n = file.blocking_read_at(memory.bytes_mut(), offset).unwrap();
                prop_assert_eq!(n, expected.len());
                prop_assert!(&memory.bytes()[..n] == expected, "blocking: {offset} {len}");
                Ok(())
            });
            checked.unwrap_or_else(|e| panic!("{name}, {}: {e}", engine.backend()));
        });
    });
}

/// The number of pages that are dirty or under writeback; `None` without cachestat(2).
fn dirty(file: &Handle) -> Option<u64> {
    let known = nowait::residency::residency(file, 0..u64::MAX).unwrap();
    let known = known.known()?;
    Some(known.dirty? + known.writeback?)
}

#[test]
fn a_range_is_written_back() {
    let mount = mounted!(Filesystem::Ext4);
    let path = patterned(mount.path(), "file", 64 * PAGE);
    evict(&path);
    if dirty(&handle(&path)).is_none() {
        return slowdisk::skip_or_fail("cachestat(2)");
    }
    // The distance is so large that no folio contains pages of both.
    const FAR: u64 = 64 << 20;
    let half = 32 * PAGE;
    each(Options::new(), |engine| {
        let file = handle_rw(&path);
        for offset in [0, FAR] {
            let write = Write::new(&file, Box::new(vec![7_u8; half]), offset);
            assert_eq!(said(&one(engine, write)), Ok(half));
        }
        let range = |offset, len| SyncFileRange::new(&file, offset, len, SyncRange::all());
        assert_eq!(dirty(&file), Some(64));
        assert_eq!(said(&one(engine, range(0, half as u64))), Ok(0));
        assert_eq!(dirty(&file), Some(32));
        // To the end.
        assert_eq!(said(&one(engine, range(FAR, 0))), Ok(0));
        assert_eq!(dirty(&file), Some(0));
        // A length that does not fit into the ring's entry is not taken as "to the end".
        for offset in [FAR, 5 << 30] {
            let write = Write::new(&file, Box::new(vec![7_u8; half]), offset);
            assert_eq!(said(&one(engine, write)), Ok(half));
        }
        assert_eq!(said(&one(engine, range(0, 1 << 32))), Ok(0));
        assert_eq!(dirty(&file), Some(32));
        assert_eq!(said(&one(engine, range(5 << 30, 0))), Ok(0));
        let beyond = one(engine, range(u64::MAX, 1));
        assert_eq!(said(&beyond), Err(libc::EINVAL));
    });
    each_shared(Options::new(), |engine| {
        let mut file = OpenOptions::new();
        file.read(true).write(true).engine(engine);
        let file = file.blocking_open(&path).unwrap();
        pollster::block_on(async {
            for offset in [0, FAR] {
                let write = file.write_all_at(vec![8; half], offset).await;
                write.into_result().unwrap();
            }
            let range = SyncFileRange::new(file.handle(), 0, half as u64, SyncRange::all());
            engine.run(range).await.result.unwrap();
        });
        assert_eq!(dirty(file.handle()), Some(32));
        file.blocking_sync_all().unwrap();
    });
}

#[test]
fn a_dsync_write_is_on_the_device_when_it_is_done() {
    let mount = mounted!(Filesystem::Ext4);
    let path = patterned(mount.path(), "file", 16 * PAGE);
    if dirty(&handle(&path)).is_none() {
        return slowdisk::skip_or_fail("cachestat(2)");
    }
    each_shared(Options::new(), |engine| {
        let mut file = OpenOptions::new();
        file.read(true).write(true).engine(engine);
        let file = file.blocking_open(&path).unwrap();
        let write = file.write_at(vec![9; 16 * PAGE], 0).flags(RwFlags::DSYNC);
        assert_eq!(pollster::block_on(write).result.unwrap(), 16 * PAGE);
        assert_eq!(dirty(file.handle()), Some(0));
    });
}

#[test]
fn an_atomic_write_is_refused_where_the_file_takes_none() {
    let mount = mounted!(Filesystem::Ext4);
    let path = patterned(mount.path(), "file", 16 * PAGE);
    each_shared(Options::new(), |engine| {
        let mut file = OpenOptions::new();
        file.read(true).write(true).direct(true).engine(engine);
        let file = file.blocking_open(&path).unwrap();
        // Loop devices have no atomic writes. `make test-iopoll` tests a device that has.
        assert_eq!(AtomicWrites::of(&file).unwrap(), None);
        let write = file
            .write_at(Memory::new(0, PAGE), 0)
            .flags(RwFlags::ATOMIC);
        let error = pollster::block_on(write).result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    });
}
