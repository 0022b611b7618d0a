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
use crate::connection::Connection;
use crate::error::{Doing, Error, Result};
use crate::fault::{Fault, FaultId};
use crate::janitor::Claim;
use crate::log::{Counters, Entry};
use crate::missing;
use crate::mount::take_down;
use crate::queue::{Delays, Queue};
use crate::scratch::Scratch;
use crate::server::{FILE_NAME, Server};
use crate::sys;

/// The number of threads that answer requests. While one copies data, the other waits for the next
/// due time.
const ANSWERING: usize = 2;
/// The number of threads that receive requests. A file needs more, because its reads may wait for a
/// real disk.
const RECEIVING_MEMORY: usize = 2;
const RECEIVING_FILE: usize = 8;

/// The options of a disk; from [`SlowDisk::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    size: u64,
    delays: Delays,
    queue: usize,
    dir: Option<PathBuf>,
    backing_dir: Option<PathBuf>,
    record: bool,
}

impl Builder {
    /// Sets the size in bytes, rounded up to 4 KiB. Default: 512 MiB, which is enough for each
    /// [`Filesystem`](crate::Filesystem).
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes.next_multiple_of(4096);
        self
    }

    /// Sets the time that a request is in service. Default: zero.
    pub fn latency(mut self, latency: Duration) -> Self {
        self.delays.latency = latency;
        self
    }

    /// Sets the additional time of a request that does not begin at the end of the previous request
    /// in service. It is the same for every distance. Default: zero.
    pub fn seek(mut self, cost: Duration) -> Self {
        self.delays.seek = cost;
        self
    }

    /// Sets the maximum number of requests in service. Further requests wait in the order of their
    /// arrival. Default: 32. Minimum: 1.
    pub fn queue(mut self, places: usize) -> Self {
        self.queue = places.max(1);
        self
    }

    /// Stores the bytes in an unnamed sparse file in `dir` instead of in memory.
    ///
    /// A read then takes at least as long as a read of that file.
    /// [`drop_caches`](crate::drop_caches) evicts that file, too.
    pub fn backing_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.backing_dir = Some(dir.into());
        self
    }

    /// Sets the parent of the mount directory. Default: the directory for temporary files.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets if requests are logged. Default: true. An entry uses 64 bytes until
    /// [`SlowDisk::take_log`].
    pub fn record(mut self, record: bool) -> Self {
        self.record = record;
        self
    }

    /// Makes the disk.
    ///
    /// # Errors
    ///
    /// If a requirement is missing (see [`available`](crate::available)) or the mount fails.
    pub fn build(self) -> Result<SlowDisk> {
        missing::available()?;
        let scratch = Scratch::new(self.dir.as_deref())?;
        let mount_point = scratch.subdir("fuse")?;
        let claim = Claim::unmount(&mount_point)?;
        let queue = Arc::new(Queue::new(self.queue, self.delays, self.record));
        let path = mount_point.join(FILE_NAME);
        let size = self.size;

        let (ready, started) = mpsc::sync_channel(1);
        let served = Arc::clone(&queue);
        let at = mount_point.clone();
        let service = thread::Builder::new()
            .name("slowdisk".into())
            .spawn(move || serve(self, &served, &at, &ready))
            .doing(|| "starting a thread".into())?;
        let mut disk = Inner {
            queue,
            size,
            path,
            mount_point,
            connection: None,
            service: Some(service),
            _claim: claim,
            _scratch: scratch,
        };
        started.recv().unwrap_or_else(|_| {
            let cause = io::Error::other("the disk's thread has ended");
            Err(Error::new("starting the disk", cause))
        })?;
        let connection = Connection::of(&disk.mount_point)
            .doing(|| "opening the control file of a FUSE connection".into())?;
        disk.connection = Some(connection);
        Ok(SlowDisk {
            inner: Arc::new(disk),
        })
    }
}

/// A disk with configurable latency, queue depth, seek cost and faults.
///
/// The disk is one file, [`SlowDisk::path`], for a loop device. A clone is another handle to the
/// same disk. The disk ends with its last handle.
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
    /// None if the disk could not be started.
    connection: Option<Connection>,
    service: Option<JoinHandle<()>>,
    _claim: Claim,
    _scratch: Scratch,
}

impl SlowDisk {
    /// The default options: 512 MiB in memory, 32 places, no latency.
    pub fn builder() -> Builder {
        Builder {
            size: 512 << 20,
            delays: Delays {
                latency: Duration::ZERO,
                seek: Duration::ZERO,
            },
            queue: 32,
            dir: None,
            backing_dir: None,
            record: true,
        }
    }

    /// The path of the disk's file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.inner.size
    }

    /// Changes the latency for requests that enter service after this call.
    pub fn set_latency(&self, latency: Duration) {
        self.inner
            .queue
            .set_delays(|delays| delays.latency = latency);
    }

    /// Changes the seek cost for requests that enter service after this call.
    pub fn set_seek(&self, cost: Duration) {
        self.inner.queue.set_delays(|delays| delays.seek = cost);
    }

    /// Returns true if the disk has a seek cost.
    pub(crate) fn seeks(&self) -> bool {
        !self.inner.queue.delays().seek.is_zero()
    }

    /// Serves requests without latency and seek cost until the result is dropped, including those
    /// in service. This is for preparing files. Faults still apply.
    #[must_use = "the disk is slow again when this is dropped"]
    pub fn full_speed(&self) -> FullSpeed {
        self.inner.queue.hurry();
        FullSpeed { disk: self.clone() }
    }

    /// Injects a fault for requests that enter service after this call.
    pub fn inject(&self, fault: Fault) -> FaultId {
        self.inner.queue.inject(fault)
    }

    /// Releases a fault. The requests that it stalled continue. Does nothing if it was already
    /// released.
    pub fn release(&self, fault: FaultId) {
        self.inner.queue.release(fault);
    }

    /// Releases all faults.
    pub fn release_all(&self) {
        self.inner.queue.release_all();
    }

    /// The number of requests that are stalled now.
    pub fn stalled(&self) -> usize {
        self.inner.queue.stalled()
    }

    /// The log of answered requests.
    pub fn log(&self) -> Vec<Entry> {
        self.inner.queue.log()
    }

    /// Returns the log and empties it. Counters are not reset.
    pub fn take_log(&self) -> Vec<Entry> {
        self.inner.queue.take_log()
    }

    /// The flushes since the log was last taken. Each is given as the number of requests in the log
    /// at the time of the flush.
    pub fn flushes(&self) -> Vec<usize> {
        self.inner.queue.flushes()
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.inner.queue.counters()
    }
}

/// A guard: the disk has no latency until it is dropped; from [`SlowDisk::full_speed`].
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
        // Another mount namespace may still have the mount, and the service would not end.
        if let Some(connection) = &self.connection {
            connection.abort();
        }
        if let Some(service) = self.service.take() {
            // A panic of the thread was already printed.
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

/// The disk's thread: mounts, reports the result, and serves requests until the mount is gone.
fn serve(
    builder: Builder,
    queue: &Arc<Queue>,
    mount_point: &Path,
    ready: &mpsc::SyncSender<Result<()>>,
) {
    // Only this thread and the threads that it starts open, use and close the disk's descriptors.
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
        // Also on a panic: pending answers must be dropped by a thread of this scope.
        let _close = CloseOnDrop(queue);
        for _ in 0..ANSWERING {
            scope.spawn(|| queue.serve());
        }
        // The receiver is waiting for this message.
        let _ = ready.send(Ok(()));
        // Ends when the mount is gone. The result is not needed then.
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
    let options = CString::new(options).expect("the options have no NUL byte");
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
