//! The file that is asked about, and the answers: fincore, NOWAIT reads, and who brings what is
//! missing.

use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nowait::read::{Cached, cached};
use nowait::residency::{Answer, Probe, Source, page_size};
use rustix::fs::Advice;

use super::cell::{Pattern, Place};
use crate::harness::files;
use nowait_cli::problem::Problem;

/// What all turns of one process have in common.
pub struct Ground {
    pub path: PathBuf,
    /// Bytes that are asked about.
    pub size: u64,
    /// How long a turn is measured.
    pub time: Duration,
    pub seed: u64,
    /// Whether mincore(2) tells the truth of this file.
    pub mincore: bool,
}

impl Ground {
    /// How long a turn goes on before what it does counts: the last turn's cache is another's.
    pub fn settling(&self) -> Duration {
        self.time / 4
    }

    /// The file's pages.
    pub fn pages(&self) -> u64 {
        self.size / page_size()
    }

    /// Opens the file as this pattern has it.
    pub fn open(&self, pattern: Pattern) -> Result<File, Problem> {
        let file = files::open(&self.path)?;
        let advice = match pattern {
            Pattern::Linear => Advice::Normal,
            Pattern::Seeky => Advice::Random,
        };
        rustix::fs::fadvise(&file, 0, None, advice).map_err(|e| Problem::of("fadvise", e))?;
        Ok(file)
    }

    /// Where a turn's question number `i` goes.
    pub fn offset(&self, place: Place, i: u64) -> u64 {
        place.offset(i, self.pages(), page_size(), self.seed)
    }

    /// Somebody who knows whether pages are not only counted, but have their content.
    pub fn ready<'fd>(&self, file: &'fd File) -> Result<Option<Probe<'fd>>, Problem> {
        if !self.mincore {
            return Ok(None);
        }
        Ok(Some(Probe::only(Source::Mincore, file)?))
    }
}

/// Whether all of a range is cached, as fincore says.
#[inline]
pub fn resident(probe: &Probe<'_>, offset: u64, len: u64) -> Result<bool, Problem> {
    match probe.resident_prefix(offset, len)? {
        Answer::Known { value, .. } => Ok(value == len),
        Answer::Unknown(reason) => Err(Problem::Failed(format!(
            "residency can't be asked for here: {reason}"
        ))),
    }
}

/// Whether a NOWAIT read brought all.
#[inline]
pub fn read_now(file: &File, buffer: &mut [u8], offset: u64) -> Result<bool, Problem> {
    match cached(file, &mut *buffer, offset)? {
        Cached::All(n) => Ok(n == buffer.len()),
        Cached::Prefix(_) | Cached::Nothing => Ok(false),
        Cached::Unsupported(why) => Err(Problem::Failed(format!(
            "{why}; name a --file on a filesystem that has NOWAIT reads: ext4, xfs, btrfs"
        ))),
    }
}

/// A thread that reads what was missing, as a worker would: the probe never waits for the device.
pub struct Refill {
    orders: Option<Sender<u64>>,
    done: Receiver<()>,
    under_way: usize,
    thread: Option<JoinHandle<()>>,
}

/// How much may be missing before the probe has to wait with its next question.
const ROOM: usize = 8;

impl Refill {
    /// Starts it, with a file of its own.
    pub fn start(file: File, block: u64) -> Refill {
        let (orders, ordered) = channel::<u64>();
        let (report, done) = channel();
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; block as usize];
            for offset in ordered {
                // What can't be read stays missing, and is counted so.
                let _ = rustix::io::pread(&file, &mut buffer, offset);
                // Nobody listens any more at the end of a turn.
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

    /// Whether it can be asked for more.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        while self.under_way > 0 && self.done.try_recv().is_ok() {
            self.under_way -= 1;
        }
        self.under_way < ROOM
    }

    /// Sleeps until it has brought something, or for so long. A spinning probe would keep it from
    /// its processor where there are few.
    pub fn wait(&mut self, time: Duration) {
        if self.done.recv_timeout(time).is_ok() {
            self.under_way -= 1;
        }
    }

    /// Has it read this block.
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
        // Without a sender it ends, once all is read.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
