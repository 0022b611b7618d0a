//! The slow disk: builder, handle, and the threads that serve it.

use std::ffi::CString;
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuser::{Config, Session, SessionACL};
use rustix::mount::{MountFlags, mount};

use crate::backing::Backing;
use crate::error::{Doing, Error, Result};
use crate::fault::{Fault, FaultId};
use crate::janitor::Claim;
use crate::log::{Counters, Entry};
use crate::missing;
use crate::mount::take_down;
use crate::queue::{Pace, Queue};
use crate::scratch::Scratch;
use crate::server::{FILE_NAME, Server};
use crate::sys;

/// Threads that answer requests: while one copies data, the other keeps the time.
const ANSWERING: usize = 2;
/// Threads that take requests in. More for a file, whose reads may wait for a real disk.
const RECEIVING_MEMORY: usize = 2;
const RECEIVING_FILE: usize = 8;

/// What a disk is to be like; from [`SlowDisk::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    size: u64,
    pace: Pace,
    queue: usize,
    dir: Option<PathBuf>,
    backing_dir: Option<PathBuf>,
    record: bool,
}

impl Builder {
    /// Bytes, rounded up to 4 KiB. Default: 512 MiB, enough for each [`Filesystem`](crate::Filesystem).
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes.next_multiple_of(4096);
        self
    }

    /// How long a request is in service. Default: none.
    pub fn latency(mut self, latency: Duration) -> Self {
        self.pace.latency = latency;
        self
    }

    /// What a request takes in addition if it does not begin where the one that went into service
    /// before it ends; the same for every distance. Default: nothing.
    pub fn seek(mut self, cost: Duration) -> Self {
        self.pace.seek = cost;
        self
    }

    /// How many requests are in service at once; the others wait their turn, in the order in which
    /// they came. Default: 32, and at least 1.
    pub fn queue(mut self, places: usize) -> Self {
        self.queue = places.max(1);
        self
    }

    /// Keeps the bytes in an unnamed sparse file in `dir` instead of in memory.
    ///
    /// Reads then take no less than that file's do, which matters after
    /// [`drop_caches`](crate::drop_caches): it makes the file cold as well.
    pub fn backing_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.backing_dir = Some(dir.into());
        self
    }

    /// Where to make the directory of the FUSE mount. Default: where temporary files go.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Whether requests are logged. Default: yes; each takes 64 bytes until
    /// [`SlowDisk::take_log`].
    pub fn record(mut self, record: bool) -> Self {
        self.record = record;
        self
    }

    /// Makes the disk.
    ///
    /// # Errors
    ///
    /// When something is missing (see [`available`](crate::available)), or the mount fails.
    pub fn build(self) -> Result<SlowDisk> {
        missing::available()?;
        let scratch = Scratch::new(self.dir.as_deref())?;
        let mount_point = scratch.subdir("fuse")?;
        let claim = Claim::unmount(&mount_point)?;
        let queue = Arc::new(Queue::new(self.queue, self.pace, self.record));
        let path = mount_point.join(FILE_NAME);
        let size = self.size;

        let (ready, started) = mpsc::sync_channel(1);
        let served = Arc::clone(&queue);
        let at = mount_point.clone();
        let service = thread::Builder::new()
            .name("slowdisk".into())
            .spawn(move || serve(self, &served, &at, &ready))
            .doing(|| "starting a thread".into())?;
        let disk = SlowDisk {
            inner: Arc::new(Inner {
                queue,
                size,
                path,
                mount_point,
                service: Some(service),
                _claim: claim,
                _scratch: scratch,
            }),
        };
        started.recv().unwrap_or_else(|_| {
            let cause = io::Error::other("its thread has ended");
            Err(Error::new("starting the disk", cause))
        })?;
        Ok(disk)
    }
}

/// A disk with latency, queue depth, seek cost and faults of our choosing.
///
/// Seen from outside it is one file, [`SlowDisk::path`], for a loop device. A clone is another
/// handle to the same disk, which ends with the last of them.
#[derive(Clone, Debug)]
pub struct SlowDisk {
    inner: Arc<Inner>,
}

/// The disk itself. Fields are dropped in this order.
struct Inner {
    queue: Arc<Queue>,
    size: u64,
    path: PathBuf,
    mount_point: PathBuf,
    service: Option<JoinHandle<()>>,
    _claim: Claim,
    _scratch: Scratch,
}

impl SlowDisk {
    /// A disk of 512 MiB in memory, with 32 places and without latency, to be changed.
    pub fn builder() -> Builder {
        Builder {
            size: 512 << 20,
            pace: Pace {
                latency: Duration::ZERO,
                seek: Duration::ZERO,
            },
            queue: 32,
            dir: None,
            backing_dir: None,
            record: true,
        }
    }

    /// The file that is the disk.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.inner.size
    }

    /// Changes the latency of requests that go into service from now on.
    pub fn set_latency(&self, latency: Duration) {
        self.inner.queue.set_pace(|pace| pace.latency = latency);
    }

    /// Changes the seek cost of requests that go into service from now on.
    pub fn set_seek(&self, cost: Duration) {
        self.inner.queue.set_pace(|pace| pace.seek = cost);
    }

    /// Serves requests without latency or seek cost, those in service included, until the result
    /// is dropped: for preparing files. Faults stay in force.
    #[must_use = "the disk is slow again when this is dropped"]
    pub fn full_speed(&self) -> FullSpeed {
        self.inner.queue.hurry();
        FullSpeed { disk: self.clone() }
    }

    /// Puts a fault in force, for requests that go into service from now on.
    pub fn inject(&self, fault: Fault) -> FaultId {
        self.inner.queue.inject(fault)
    }

    /// Ends a fault; requests that it stalled go on. Does nothing when it has ended already.
    pub fn release(&self, fault: FaultId) {
        self.inner.queue.release(fault);
    }

    /// Ends all faults.
    pub fn release_all(&self) {
        self.inner.queue.release_all();
    }

    /// How many requests are stalled at this moment.
    pub fn stalled(&self) -> usize {
        self.inner.queue.stalled()
    }

    /// The requests answered so far.
    pub fn log(&self) -> Vec<Entry> {
        self.inner.queue.log()
    }

    /// The requests answered since the log was last taken. Counters go on.
    pub fn take_log(&self) -> Vec<Entry> {
        self.inner.queue.take_log()
    }

    /// The flushes since the log was last taken: how many requests of the log had been answered when
    /// each of them came.
    pub fn flushes(&self) -> Vec<usize> {
        self.inner.queue.flushes()
    }

    /// How much was asked of the disk.
    pub fn counters(&self) -> Counters {
        self.inner.queue.counters()
    }
}

/// While it lives the disk has no latency; from [`SlowDisk::full_speed`].
#[derive(Debug)]
pub struct FullSpeed {
    disk: SlowDisk,
}

impl Drop for FullSpeed {
    fn drop(&mut self) {
        self.disk.inner.queue.calm();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.release_all();
        self.queue.hurry();
        take_down(&self.mount_point);
        if let Some(service) = self.service.take() {
            // A panic there has been printed; here we only clean up.
            let _ = service.join();
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("path", &self.path)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// The disk's thread: mounts, says so, and serves until the mount is gone.
fn serve(
    builder: Builder,
    queue: &Arc<Queue>,
    mount_point: &Path,
    ready: &mpsc::SyncSender<Result<()>>,
) {
    // All descriptors of the disk are opened, used and closed by this thread and those it starts.
    let receiving = match builder.backing_dir {
        Some(_) => RECEIVING_FILE,
        None => RECEIVING_MEMORY,
    };
    let session = sys::leave_descriptor_table()
        .doing(|| "making a descriptor table".into())
        .and_then(|()| start_session(builder, queue, mount_point, receiving));
    let session = match session {
        Ok(session) => session,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    thread::scope(|scope| {
        // On the way out, by a panic as well: an answer left over must not be dropped elsewhere.
        let _close = CloseOnDrop(queue);
        for _ in 0..ANSWERING {
            scope.spawn(|| queue.serve());
        }
        // Whoever waits for it has not gone away.
        let _ = ready.send(Ok(()));
        // Ends when the mount is gone; how it went is of no use any more.
        let _ = session.run();
    });
}

struct CloseOnDrop<'a>(&'a Queue);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn start_session(
    builder: Builder,
    queue: &Arc<Queue>,
    mount_point: &Path,
    receiving: usize,
) -> Result<Session<Server>> {
    let backing = match &builder.backing_dir {
        None => Backing::memory(builder.size).doing(|| "making a file in memory".into())?,
        Some(dir) => Backing::file(dir, builder.size)
            .doing(|| format!("making a file in {}", dir.display()))?,
    };
    let server = Server {
        queue: Arc::clone(queue),
        backing: Arc::new(backing),
        size: builder.size,
        places: builder.queue,
    };
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .doing(|| "opening /dev/fuse".into())?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
        device.as_raw_fd()
    );
    let options = CString::new(options).expect("no zero byte in it");
    let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME;
    mount(
        "slowdisk",
        mount_point,
        "fuse.slowdisk",
        flags,
        options.as_c_str(),
    )
    .doing(|| format!("mounting FUSE on {}", mount_point.display()))?;

    let mut config = Config::default();
    config.n_threads = Some(receiving);
    let started = Session::from_fd(server, OwnedFd::from(device), SessionACL::All, config)
        .doing(|| "starting the FUSE session".into());
    if started.is_err() {
        take_down(mount_point);
    }
    started
}
