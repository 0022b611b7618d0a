//! One turn of a contender.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use hdrhistogram::Histogram;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::contender::Name;
use super::ground::Ground;
use super::work::Work;
use crate::harness::contender::{Named, Word};
use crate::harness::percentiles::{Percentiles, histogram, nanoseconds};
use crate::harness::round::Round;
use crate::harness::usage::Usage;
use nowait_cli::scramble::{mix, permute};

/// One turn.
pub struct Turn<'a> {
    pub work: Work,
    pub ground: &'a Ground,
    pub seconds: f64,
    pub seed: u64,
    /// The threads of the process before its first turn.
    pub at_first: u64,
    pub stop: &'a Stop,
}

/// The tasks of a turn.
struct Tasks {
    store: Arc<dyn ObjectStore>,
    location: Path,
    work: Work,
    /// The blocks of the object.
    blocks: u64,
    seed: u64,
    /// The next operation.
    next: AtomicU64,
    /// The operations that are complete.
    done: AtomicU64,
    end: Instant,
    stop: Stop,
    /// The file of the object, for the bytes.
    file: std::fs::File,
}

/// The threads of this process.
pub fn threads() -> u64 {
    std::fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count() as u64)
}

/// The time after which an idle thread of an engine has ended, and the threads that an engine keeps.
const IDLE: Duration = Duration::from_secs(6);
const KEPT: u64 = 3;

/// An operation in this number is compared with the file.
const CHECKED: u64 = 64;

impl Turn<'_> {
    /// Runs the work with a new store, and counts its operations.
    pub fn take(&self, name: Name) -> Result<Round, Problem> {
        let failed = |e: String| Problem::Failed(format!("{}: {e}", name.word()));
        let others = self.others(name);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.work.threads())
            .enable_all()
            .build()
            .map_err(|e| Problem::of("cannot start a runtime", e))?;
        let before = Usage::of_self();
        let begin = Instant::now();
        let mut latencies = None;
        let (ops, bytes) = match self.work {
            Work::List => (self.list(name, &runtime).map_err(failed)?, 0),
            work => {
                let ops;
                (ops, latencies) = self.read(name, &runtime).map_err(failed)?;
                (ops, work.block() * work.ranges())
            }
        };
        let seconds = begin.elapsed().as_secs_f64();
        let used = Usage::of_self() - before;
        let mut round = Round::new(ops, bytes, seconds, used);
        round.lat_us = latencies;
        round.threads = Some(threads().saturating_sub(others));
        Ok(round)
    }

    /// The threads that are not those of the turn. The engine of the process, which all stores of nowait use, keeps some of its
    /// threads from one turn to the next.
    fn others(&self, name: Name) -> u64 {
        let begin = Instant::now();
        while threads() > self.at_first + KEPT && begin.elapsed() < IDLE && !self.stop.asked() {
            std::thread::sleep(Duration::from_millis(50));
        }
        match name.is_ours() {
            true => self.at_first,
            false => threads(),
        }
    }

    /// Lists the objects once.
    fn list(&self, name: Name, runtime: &tokio::runtime::Runtime) -> Result<u64, String> {
        let Some((root, objects)) = self.ground.list() else {
            return Ok(0);
        };
        let store = name.store(&root).map_err(|e| e.to_string())?;
        let listed = runtime.spawn(async move {
            let mut list = store.list(None);
            let mut n = 0;
            while let Some(object) = list.next().await {
                object.map_err(|e| e.to_string())?;
                n += 1;
            }
            Ok::<u64, String>(n)
        });
        let listed = runtime.block_on(listed).map_err(|e| e.to_string())??;
        match listed == objects {
            true => Ok(1),
            false => Err(format!("listed {listed} objects of {objects}")),
        }
    }

    /// Reads ranges until the time is over, or each range once if they are to be cold.
    fn read(
        &self,
        name: Name,
        runtime: &tokio::runtime::Runtime,
    ) -> Result<(u64, Option<Percentiles>), String> {
        let path = self.ground.object().canonicalize();
        let path = path.map_err(|e| e.to_string())?;
        let (Some(root), Some(file)) = (path.parent(), path.file_name()) else {
            return Err("the object is no file".into());
        };
        let tasks = Arc::new(Tasks {
            store: name.store(root).map_err(|e| e.to_string())?,
            location: Path::parse(file.to_string_lossy()).map_err(|e| e.to_string())?,
            work: self.work,
            blocks: self.ground.size() / self.work.block(),
            seed: mix(self.seed),
            next: AtomicU64::new(0),
            done: AtomicU64::new(0),
            end: Instant::now() + Duration::from_secs_f64(self.seconds),
            stop: self.stop.clone(),
            file: std::fs::File::open(&path).map_err(|e| e.to_string())?,
        });
        let running: Vec<_> = (0..self.work.tasks())
            .map(|_| runtime.spawn(tasks.clone().run()))
            .collect();
        let mut times = histogram();
        for task in running {
            let own = runtime.block_on(task).map_err(|e| e.to_string())??;
            times.add(own).map_err(|e| e.to_string())?;
        }
        Ok((tasks.done.load(Relaxed), Percentiles::of(&times)))
    }
}

impl Tasks {
    /// One task. Returns the times of its operations in nanoseconds.
    async fn run(self: Arc<Tasks>) -> Result<Histogram<u64>, String> {
        let mut times = histogram();
        loop {
            let op = self.next.fetch_add(1, Relaxed);
            // All contenders read all of a cold object: the more of it is cached, the further the
            // kernel reads ahead.
            let is_over = match self.work.is_cold() {
                true => op >= self.blocks,
                false => Instant::now() >= self.end,
            };
            if is_over || self.stop.asked() {
                return Ok(times);
            }
            let begin = Instant::now();
            let ranges = self.ranges(op);
            let read = match &ranges[..] {
                [range] => {
                    let read = self.store.get_range(&self.location, range.clone()).await;
                    read.map(|bytes| vec![bytes])
                }
                ranges => self.store.get_ranges(&self.location, ranges).await,
            };
            let read = read.map_err(|e| e.to_string())?;
            times.saturating_record(nanoseconds(begin.elapsed()));
            if op.is_multiple_of(CHECKED) {
                for (range, bytes) in ranges.iter().zip(&read) {
                    self.check(range, bytes)?;
                }
            }
            self.done.fetch_add(1, Relaxed);
        }
    }

    /// The ranges of an operation: each place of the object comes once before any comes again.
    fn ranges(&self, op: u64) -> Vec<Range<u64>> {
        let (block, n) = (self.work.block(), self.work.ranges());
        (0..n)
            .map(|i| {
                let at = permute((op * n + i) % self.blocks, self.blocks, self.seed);
                at * block..(at + 1) * block
            })
            .collect()
    }

    /// Compares the last eight bytes of a range with those of the file.
    fn check(&self, range: &Range<u64>, bytes: &[u8]) -> Result<(), String> {
        let mut last = [0; 8];
        let read = self.file.read_exact_at(&mut last, range.end - 8);
        read.map_err(|e| e.to_string())?;
        match bytes.len() as u64 == range.end - range.start && bytes.ends_with(&last) {
            true => Ok(()),
            false => Err(format!("wrong bytes at {range:?}")),
        }
    }
}
