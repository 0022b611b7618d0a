//! Starts the driver: a thread with a descriptor table of its own, and the queue to it.

use std::sync::mpsc;

use rustix::io::Errno;

use crate::driver::Driver;
use crate::fd_passing;
use crate::queue::SubmissionQueue;
use crate::sys::{descriptor_table, thread};

/// The progress of a thread that starts.
enum Progress {
    /// The thread with this ID has a descriptor table of its own.
    HasOwnTable(i32),
    Ready,
    Failed(Errno),
}

/// Starts a driver, which runs until the process ends. `generation` is that of the process.
pub fn start(generation: u64) -> Result<&'static SubmissionQueue, Errno> {
    let (sender, receiver) = fd_passing::channel(generation)?;
    let number = receiver.number();
    let (progress_sender, progress) = mpsc::channel();
    let (queue_sender, queue) = mpsc::channel();
    thread::start_with_signals_blocked(move || {
        // The engine's workers get this name too.
        let _ = rustix::thread::set_name(c"nowait-aio");
        let own_table = descriptor_table::unshare(number).inspect(|()| {
            let _ = progress_sender.send(Progress::HasOwnTable(thread::id()));
        });
        let closed = own_table.and_then(|()| descriptor_table::close_all_but(number));
        match closed.and_then(|()| Driver::new(receiver)) {
            Ok(driver) => {
                let _ = progress_sender.send(Progress::Ready);
                // There is no queue if `start` has failed.
                if let Ok(queue) = queue.recv() {
                    driver.run(queue);
                }
            }
            Err(errno) => {
                let _ = progress_sender.send(Progress::Failed(errno));
            }
        }
    })
    .inspect_err(|_| {
        sender.close();
    })?;
    let mut driver_thread = 0;
    loop {
        match progress.recv() {
            Ok(Progress::HasOwnTable(thread)) => {
                driver_thread = thread;
                // SAFETY: the driver's table has a copy of the receiver. This is the descriptor in
                // the program's table, which no code uses.
                unsafe { libc::close(number) };
            }
            Ok(Progress::Ready) => break,
            Ok(Progress::Failed(errno)) => {
                sender.close();
                return Err(errno);
            }
            Err(_) => {
                sender.close();
                return Err(Errno::AGAIN);
            }
        }
    }
    let queue = SubmissionQueue::new(sender, driver_thread);
    let _ = queue_sender.send(queue);
    Ok(queue)
}
