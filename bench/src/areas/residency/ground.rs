//! The file of the questions: residency queries, NOWAIT reads, and a thread that reads missing
//! pages.

use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nowait::read::{Cached, cached_by_nowait};
use nowait::residency::{Answer, Probe, Source, page_size};
use rustix::fs::Advice;

use super::cell::{Pattern, Place};
use crate::harness::files;
use nowait_cli::problem::Problem;

/// The parameters that all turns of one process share.
pub struct Ground {
    pub path: PathBuf,
    /// The bytes of the file that are used.
    pub size: u64,
    /// The length of a turn.
    pub time: Duration,
    pub seed: u64,
    /// True if mincore(2) reports the residency of this file.
    pub mincore: bool,
}

impl Ground {
    /// The time at the start of a turn that is not counted, because the cache is still in the state
    /// that the previous turn has left.
    pub fn settling(&self) -> Duration {
        self.time / 4
    }

    /// The number of pages that are used.
    pub fn pages(&self) -> u64 {
        self.size / page_size()
    }

    /// Opens the file with the advice of this pattern.
    pub fn open(&self, pattern: Pattern) -> Result<File, Problem> {
        let file = files::open(&self.path)?;
        let advice = match pattern {
            Pattern::Linear => Advice::Normal,
            Pattern::Seeky => Advice::Random,
        };
        rustix::fs::fadvise(&file, 0, None, advice).map_err(|e| Problem::of("fadvise", e))?;
        Ok(file)
    }

    /// The offset of question number `i` of a turn.
    pub fn offset(&self, place: Place, i: u64) -> u64 {
        place.offset(i, self.pages(), page_size(), self.seed)
    }

    /// A probe that reports if the content of a page has arrived; `None` if mincore(2) is not
    /// reliable.
    pub fn ready<'fd>(&self, file: &'fd File) -> Result<Option<Probe<'fd>>, Problem> {
        if !self.mincore {
            return Ok(None);
        }
        Ok(Some(Probe::only(Source::Mincore, file)?))
    }
}

/// Returns true if a whole range is reported as cached.
#[inline]
pub fn resident(probe: &Probe<'_>, offset: u64, len: u64) -> Result<bool, Problem> {
    match probe.resident_prefix(offset, len)? {
        Answer::Known { value, .. } => Ok(value == len),
        Answer::Unknown(reason) => Err(Problem::Failed(format!(
            "residency can't be asked for here: {reason}"
        ))),
    }
}

/// Returns true if a NOWAIT read filled the buffer.
#[inline]
pub fn read_now(file: &File, buffer: &mut [u8], offset: u64) -> Result<bool, Problem> {
    match cached_by_nowait(file, &mut *buffer, offset)? {
        Cached::All(n) => Ok(n == buffer.len()),
        Cached::Prefix(_) | Cached::Nothing => Ok(false),
        Cached::Unsupported(why) => Err(Problem::Failed(format!(
            "{why}; name a --file on a filesystem that has NOWAIT reads: ext4, xfs, btrfs"
        ))),
    }
}

/// A thread that reads missing pages, as a worker would, so that the caller never waits for the
/// device.
pub struct Refill {
    orders: Option<Sender<u64>>,
    done: Receiver<()>,
    under_way: usize,
    thread: Option<JoinHandle<()>>,
}

/// How many pages may be requested from the thread at once.
const ROOM: usize = 8;

impl Refill {
    /// Starts the thread with its own descriptor.
    pub fn start(file: File, block: u64) -> Refill {
        let (orders, ordered) = channel::<u64>();
        let (report, done) = channel();
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; block as usize];
            for offset in ordered {
                // A page that cannot be read stays missing, and the next question counts it so.
                let _ = rustix::io::pread(&file, &mut buffer, offset);
                // The receiver is gone at the end of a turn.
                let _ = report.send(());
            }
        });
        Refill {
            orders: Some(orders),
            done,
            under_way: 0,
            thread: Some(thread),
        }
    }

    /// Returns true if another page can be requested.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        while self.under_way > 0 && self.done.try_recv().is_ok() {
            self.under_way -= 1;
        }
        self.under_way < ROOM
    }

    /// Sleeps until the thread has read a page, or for this time. A caller that spins would take
    /// the thread's processor on a small machine.
    pub fn wait(&mut self, time: Duration) {
        if self.done.recv_timeout(time).is_ok() {
            self.under_way -= 1;
        }
    }

    /// Requests the block at an offset.
    pub fn bring(&mut self, offset: u64) {
        if let Some(orders) = &self.orders
            && orders.send(offset).is_ok()
        {
            self.under_way += 1;
        }
    }
}

impl Drop for Refill {
    fn drop(&mut self) {
        // The thread ends when the channel is closed and all pages are read.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
