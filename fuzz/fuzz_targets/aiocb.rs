//! Sequences of <aio.h>'s calls on one file, beside a file in memory: what a request returns, what it
//! brings, that a cancelled write did nothing, and that a cancelled read brought no wrong byte.
#![no_main]

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::null;
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use nowait_aio::Aiocb;

/// The file's greatest length, and the longest request.
const SPACE: usize = 1 << 16;
const LONGEST: usize = 1 << 13;

#[derive(Arbitrary, Debug)]
enum Step {
    Submit {
        slot: u8,
        how: How,
        offset: u16,
        len: u16,
    },
    List {
        slots: [u8; 3],
        how: How,
        offset: u16,
        len: u16,
        wait: bool,
    },
    Sync {
        slot: u8,
        data: bool,
    },
    Cancel {
        slot: u8,
    },
    CancelAll,
    Error {
        slot: u8,
    },
    Return {
        slot: u8,
    },
    Settle {
        slot: u8,
    },
    Evict,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
enum How {
    Read,
    Write(u8),
    BadDescriptor,
    BadOffset,
}

/// A request, and what is known of it.
struct Slot {
    block: Box<libc::aiocb>,
    buffer: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Never,
    /// The call said so, and the block may say why.
    Refused,
    Flies(How, usize, usize),
    Syncs,
    /// The results of aio_error and aio_return, which do not change.
    Over(c_int, isize),
}

impl Slot {
    fn new() -> Slot {
        Slot {
            // SAFETY: a control block of zeroes is one.
            block: Box::new(unsafe { std::mem::zeroed() }),
            buffer: vec![0; LONGEST],
            state: State::Never,
        }
    }

    fn raw(&mut self) -> *mut Aiocb {
        (&raw mut *self.block).cast()
    }

    /// The byte range of the file that the request reads or writes.
    fn range(&self) -> Option<(usize, usize)> {
        match self.state {
            State::Flies(_, offset, len) => Some((offset, offset + len)),
            // An fsync has no visible effect here.
            State::Never | State::Refused | State::Syncs | State::Over(..) => None,
        }
    }
}

struct Machine {
    file: File,
    model: Vec<u8>,
    slots: Vec<Slot>,
}

static DIRECTORY: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

impl Machine {
    fn new() -> Machine {
        Machine {
            file: tempfile::tempfile_in(DIRECTORY.path()).unwrap(),
            model: Vec::new(),
            slots: (0..6).map(|_| Slot::new()).collect(),
        }
    }

    fn is_flying(&self, slot: usize) -> bool {
        matches!(self.slots[slot].state, State::Flies(..) | State::Syncs)
    }

    /// Waits until nothing is in flight that this would meet, in the file or in the block.
    fn make_way(&mut self, slot: usize, how: How, offset: usize, len: usize) {
        self.settle(slot);
        for other in 0..self.slots.len() {
            let Some((from, to)) = self.slots[other].range() else {
                continue;
            };
            let reads = |how| how == How::Read;
            let State::Flies(others, ..) = self.slots[other].state else {
                continue;
            };
            // A read at the end of the file depends on every write.
            let meets = (from < offset + len && offset < to) || (reads(how) != reads(others));
            if meets && !(reads(how) && reads(others)) {
                self.settle(other);
            }
        }
    }

    /// Fills in a block.
    fn prepare(&mut self, slot: usize, how: How, offset: usize, len: usize) {
        self.make_way(slot, how, offset, len);
        let fd = self.file.as_raw_fd();
        let slot = &mut self.slots[slot];
        // SAFETY: as above; the old one is over.
        slot.block = Box::new(unsafe { std::mem::zeroed() });
        slot.block.aio_fildes = if how == How::BadDescriptor { -1 } else { fd };
        slot.block.aio_offset = match how {
            How::BadOffset => -1 - offset as i64,
            _ => offset as i64,
        };
        slot.block.aio_nbytes = len;
        slot.block.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
        slot.block.aio_lio_opcode = match how {
            How::Write(_) => libc::LIO_WRITE,
            _ => libc::LIO_READ,
        };
        slot.buffer.fill(match how {
            How::Write(byte) => byte,
            _ => 0xee,
        });
        slot.block.aio_buf = slot.buffer.as_mut_ptr().cast();
        slot.state = State::Flies(how, offset, len);
    }

    fn submit(&mut self, slot: usize, how: How, offset: usize, len: usize) {
        self.prepare(slot, how, offset, len);
        let raw = self.slots[slot].raw();
        // SAFETY: block and buffer live until the request is settled.
        let done = unsafe {
            match how {
                How::Write(_) => nowait_aio::aio_write(raw),
                _ => nowait_aio::aio_read(raw),
            }
        };
        if done != 0 {
            assert!(
                matches!(how, How::BadDescriptor | How::BadOffset),
                "{how:?}"
            );
            self.slots[slot].state = State::Refused;
        }
    }

    /// Waits for a request, and looks at what came of it.
    fn settle(&mut self, at: usize) {
        if !self.is_flying(at) {
            return;
        }
        let slot = &mut self.slots[at];
        let list = [slot.raw().cast_const()];
        let long = libc::timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        let woken = loop {
            // SAFETY: a list of one block.
            let woken = unsafe { nowait_aio::aio_suspend(list.as_ptr(), 1, &long) };
            // The fuzzer has a timer.
            let errno = std::io::Error::last_os_error().raw_os_error();
            if woken == 0 || errno != Some(libc::EINTR) {
                break woken;
            }
        };
        assert_eq!(woken, 0, "it hangs");
        // SAFETY: a block of ours.
        let (error, returned) = unsafe {
            (
                nowait_aio::aio_error(list[0]),
                nowait_aio::aio_return(slot.raw()),
            )
        };
        let state = std::mem::replace(&mut slot.state, State::Over(error, returned));
        match state {
            State::Syncs => assert!(matches!((error, returned), (0, 0) | (libc::ECANCELED, -1))),
            State::Flies(how, offset, len) => self.look(at, how, offset, len, error, returned),
            State::Never | State::Refused | State::Over(..) => unreachable!(),
        }
    }

    fn look(&mut self, at: usize, how: How, offset: usize, len: usize, error: c_int, n: isize) {
        let slot = &self.slots[at];
        if error == libc::ECANCELED {
            assert_eq!(n, -1);
            if how == How::Read {
                self.look_at_cancelled_read(at, offset, len);
            }
            return;
        }
        match how {
            How::BadDescriptor => assert_eq!((error, n), (libc::EBADF, -1)),
            How::BadOffset => assert_eq!((error, n), (libc::EINVAL, -1)),
            How::Write(byte) => {
                assert_eq!((error, n), (0, len as isize));
                if len > 0 && self.model.len() < offset + len {
                    self.model.resize(offset + len, 0);
                }
                if len > 0 {
                    self.model[offset..offset + len].fill(byte);
                }
            }
            How::Read => {
                let there = &self.model[offset.min(self.model.len())..];
                let there = &there[..len.min(there.len())];
                assert_eq!((error, n), (0, there.len() as isize));
                assert_eq!(&slot.buffer[..there.len()], there);
                assert!(slot.buffer[there.len()..].iter().all(|byte| *byte == 0xee));
            }
        }
    }

    /// aio_read(3) may have copied the beginning of the data from the page cache before the rest was
    /// queued.
    fn look_at_cancelled_read(&self, at: usize, offset: usize, len: usize) {
        let there = &self.model[offset.min(self.model.len())..];
        for (index, byte) in self.slots[at].buffer.iter().enumerate() {
            let is_copied = index < len && there.get(index) == Some(byte);
            assert!(is_copied || *byte == 0xee, "byte {index} is {byte}");
        }
    }

    fn step(&mut self, step: Step) {
        let at = |slot: u8| usize::from(slot) % 6;
        match step {
            Step::Submit {
                slot,
                how,
                offset,
                len,
            } => {
                let (offset, len) = place(offset, len);
                self.submit(at(slot), how, offset, len);
            }
            Step::List {
                slots,
                how,
                offset,
                len,
                wait,
            } => {
                let (mut offset, len) = place(offset, len);
                let mut list = Vec::new();
                for slot in slots.map(at) {
                    if matches!(how, How::Read | How::Write(_)) && !list.contains(&slot) {
                        self.prepare(slot, how, offset, len);
                        list.push(slot);
                        offset = (offset + len) % (SPACE - LONGEST);
                    }
                }
                let blocks: Vec<_> = list.iter().map(|slot| self.slots[*slot].raw()).collect();
                let mode = if wait {
                    libc::LIO_WAIT
                } else {
                    libc::LIO_NOWAIT
                };
                let count = blocks.len() as c_int;
                // SAFETY: as for one request.
                let done = unsafe {
                    nowait_aio::lio_listio(mode, blocks.as_ptr(), count, std::ptr::null_mut())
                };
                let interrupted =
                    std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
                assert!(done == 0 || (wait && interrupted));
                if wait && done == 0 {
                    for slot in list {
                        // SAFETY: a block of ours.
                        let error = unsafe { nowait_aio::aio_error(self.slots[slot].raw()) };
                        assert_eq!(error, 0, "the list is done");
                        self.settle(slot);
                    }
                }
            }
            Step::Sync { slot, data } => {
                self.prepare(at(slot), How::Read, 0, 0);
                let op = if data { libc::O_DSYNC } else { libc::O_SYNC };
                let raw = self.slots[at(slot)].raw();
                // SAFETY: as for a read.
                assert_eq!(unsafe { nowait_aio::aio_fsync(op, raw) }, 0);
                self.slots[at(slot)].state = State::Syncs;
            }
            Step::Cancel { slot } => {
                let slot = at(slot);
                let raw = self.slots[slot].raw();
                let flying = self.is_flying(slot);
                let elsewhere = self.slots[slot].block.aio_fildes != self.file.as_raw_fd();
                // SAFETY: a block of ours.
                let answer = unsafe { nowait_aio::aio_cancel(self.file.as_raw_fd(), raw) };
                match answer {
                    libc::AIO_CANCELED => {
                        assert!(flying && !elsewhere);
                        // SAFETY: a block of ours.
                        let error = unsafe { nowait_aio::aio_error(raw) };
                        assert_eq!(error, libc::ECANCELED);
                    }
                    libc::AIO_NOTCANCELED => assert!(flying && !elsewhere),
                    libc::AIO_ALLDONE => {}
                    // The block names another descriptor, whether it was submitted or not.
                    -1 => {
                        assert!(elsewhere);
                        let errno = std::io::Error::last_os_error().raw_os_error();
                        assert_eq!(errno, Some(libc::EINVAL));
                    }
                    other => panic!("{other}"),
                }
            }
            Step::CancelAll => {
                let fd = self.file.as_raw_fd();
                // SAFETY: no block at all.
                let answer = unsafe { nowait_aio::aio_cancel(fd, std::ptr::null_mut()) };
                assert!((0..=2).contains(&answer));
                if answer == libc::AIO_CANCELED {
                    assert!((0..6).any(|slot| self.is_flying(slot)));
                }
            }
            Step::Error { slot } => {
                let slot = &mut self.slots[at(slot)];
                // SAFETY: a block of ours.
                let error = unsafe { nowait_aio::aio_error(slot.raw()) };
                match slot.state {
                    State::Never => assert_eq!(error, -1),
                    State::Refused => assert_ne!(error, libc::EINPROGRESS),
                    State::Over(before, _) => assert_eq!(error, before),
                    State::Flies(..) | State::Syncs => assert_ne!(error, -1),
                }
            }
            Step::Return { slot } => {
                let slot = &mut self.slots[at(slot)];
                if let State::Over(_, before) = slot.state {
                    // SAFETY: a block of ours.
                    assert_eq!(unsafe { nowait_aio::aio_return(slot.raw()) }, before);
                }
            }
            Step::Settle { slot } => self.settle(at(slot)),
            Step::Evict => {
                // SAFETY: a mere call.
                unsafe {
                    libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED)
                };
            }
        }
    }
}

fn place(offset: u16, len: u16) -> (usize, usize) {
    (
        usize::from(offset) % (SPACE - LONGEST),
        usize::from(len) % LONGEST,
    )
}

fuzz_target!(|steps: Vec<Step>| {
    let mut machine = Machine::new();
    for step in steps.into_iter().take(64) {
        machine.step(step);
    }
    for slot in 0..machine.slots.len() {
        machine.settle(slot);
    }
    let len = machine.file.metadata().unwrap().len() as usize;
    assert_eq!(len, machine.model.len());
    let mut bytes = vec![0; len];
    machine.file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == machine.model, "the file's bytes differ");
    let nothing: [*const Aiocb; 0] = [];
    // SAFETY: an empty list.
    assert_eq!(
        unsafe { nowait_aio::aio_suspend(nothing.as_ptr(), 0, null()) },
        0
    );
});
