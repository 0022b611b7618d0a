//! An aio_cancel(3): the requests that are to be cancelled, and the answer of the driver.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::control_block::ControlBlock;
use crate::sys::open_file::DescriptorOf;
use crate::sys::thread;
use crate::wait;

#[derive(Debug)]
pub struct Cancellation {
    /// The file, as a descriptor of the calling thread.
    pub fildes: DescriptorOf,
    /// One request; `None` for all requests on the file.
    pub block: Option<ControlBlock>,
    answer: AtomicI32,
}

const UNANSWERED: c_int = -1;

impl Cancellation {
    pub fn new(fildes: RawFd, block: Option<ControlBlock>) -> Cancellation {
        Cancellation {
            fildes: DescriptorOf {
                thread: thread::id(),
                number: fildes,
            },
            block,
            answer: AtomicI32::new(UNANSWERED),
        }
    }

    /// Sets the answer, a constant of <aio.h>, and wakes the caller.
    pub fn set_answer(&self, answer: c_int) {
        self.answer.store(answer, Ordering::Release);
        wait::wake_all();
    }

    /// Waits for the answer. Signal handlers may run meanwhile.
    pub fn wait_for_answer(&self) -> c_int {
        let answer = || self.answer.load(Ordering::Acquire);
        wait::uninterrupted(|| answer() != UNANSWERED);
        answer()
    }
}
