//! Loop devices: block devices on files, detached on drop.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;

use crate::disk::SlowDisk;
use crate::error::{Doing, Error, Result};
use crate::janitor::Claim;
use crate::missing;
use crate::sys;

/// The major number of loop devices.
const LOOP_MAJOR: u32 = 7;
/// The number of attempts to get a free device, which another process may take first.
const ATTEMPTS: usize = 200;

/// A block device whose storage is a file.
#[derive(Debug)]
pub struct LoopDevice {
    number: u32,
    path: PathBuf,
    backing: PathBuf,
    device: File,
    /// The disk below. Its faults are released on drop, so that detaching does not wait for stalled
    /// requests.
    disk: Option<SlowDisk>,
    /// The readahead before it was set.
    read_ahead_kb: OnceLock<String>,
    /// Dropped after the device is detached.
    _claim: Claim,
}

/// The time to wait for other mount namespaces, which last as long as their processes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The kernel's default for the requests in flight.
const NR_REQUESTS: u32 = 128;

impl LoopDevice {
    /// Makes a block device on a regular file, with direct I/O if the file's filesystem supports
    /// it.
    pub fn attach(file: impl AsRef<Path>) -> Result<Self> {
        LoopDevice::attach_with_sectors(file, 0)
    }

    /// As [`attach`](LoopDevice::attach), with sectors of `sector` bytes: a power of two from 512
    /// to the page size, or 0 for the kernel's default.
    pub fn attach_with_sectors(file: impl AsRef<Path>, sector: u32) -> Result<Self> {
        let file = file.as_ref();
        match LoopDevice::configured(file, true, sector, None) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                LoopDevice::configured(file, false, sector, None)
            }
            attached => attached,
        }
    }

    /// Makes a block device on a slow disk, with direct I/O. A loop device without direct I/O
    /// serves one request at a time. If the disk has a seek cost at that time, the device reports
    /// itself as rotating, and has the scheduler `mq-deadline`, which Linux usually gives to such
    /// disks: it sorts the requests that wait.
    pub fn on(disk: &SlowDisk) -> Result<Self> {
        let device = LoopDevice::configured(disk.path(), true, 0, Some(disk.clone()))?;
        device.set_queue("rotational", if disk.seeks() { "1" } else { "0" })?;
        if fs::read_to_string(device.sysfs("loop/dio")).is_ok_and(|dio| dio.trim() == "1") {
            return Ok(device);
        }
        let cause = io::Error::other("the kernel refuses direct I/O");
        Err(Error::new(device.path.display().to_string(), cause))
    }

    fn configured(file: &Path, direct: bool, sector: u32, disk: Option<SlowDisk>) -> Result<Self> {
        missing::privileged()?;
        missing::loop_devices()?;
        // The path as sysfs shows it. The janitor compares it.
        let backing = file.canonicalize().doing(|| file.display().to_string())?;
        let source = read_write(&backing).doing(|| format!("opening {}", backing.display()))?;
        let control = read_write(Path::new("/dev/loop-control"))
            .doing(|| "opening /dev/loop-control".into())?;
        for _ in 0..ATTEMPTS {
            let number = sys::free_loop_device(&control)
                .doing(|| "looking for a free loop device".into())?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            make_node(&path, number).doing(|| format!("making {}", path.display()))?;
            let claim = Claim::detach(&path, &backing)?;
            let configured = read_write(&path).and_then(|device| {
                sys::configure_loop(&device, &source, direct, sector).map(|()| device)
            });
            match configured.map_err(|error| (error.raw_os_error(), error)) {
                Ok(writable) => {
                    // A kernel may refuse to mount a device that is open for writing. A second
                    // descriptor is opened before the first is closed, because it keeps the device
                    // attached.
                    let device =
                        File::open(&path).doing(|| format!("opening {}", path.display()))?;
                    drop(writable);
                    let device = LoopDevice {
                        number,
                        path,
                        backing,
                        device,
                        disk,
                        read_ahead_kb: OnceLock::new(),
                        _claim: claim,
                    };
                    // An earlier user of the number may have left another limit or scheduler. A
                    // kernel whose maximum is lower keeps its own, and a kernel may have no
                    // scheduler. The limit is first: a new scheduler changes the number that is
                    // shown, and not the limit (Linux 6.18).
                    let _ = device.set_nr_requests(NR_REQUESTS);
                    let seeks = device.disk.as_ref().is_some_and(SlowDisk::seeks);
                    let scheduler = if seeks { "mq-deadline" } else { "none" };
                    let _ = device.set_queue("scheduler", scheduler);
                    return Ok(device);
                }
                // Another process has taken or removed the device meanwhile.
                Err((Some(libc::EBUSY | libc::ENXIO | libc::ENODEV | libc::ENOENT), _)) => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err((_, error)) => {
                    let (file, path) = (backing.display(), path.display());
                    return Err(Error::new(format!("attaching {file} to {path}"), error));
                }
            }
        }
        let cause = io::Error::from(Errno::BUSY);
        Err(Error::new("looking for a free loop device", cause))
    }

    /// `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the kernel's readahead in KiB for files on this device. The kernel's default follows
    /// from the device's largest request and may be megabytes.
    ///
    /// A filesystem copies the value when it is mounted. Most filesystems also follow later
    /// changes. The value from before the first call is restored on drop, for the next device of
    /// this number.
    pub fn set_read_ahead_kb(&self, kib: u32) -> Result<()> {
        let before = fs::read_to_string(self.sysfs("queue/read_ahead_kb"));
        let before =
            before.doing(|| format!("reading the readahead of {}", self.path.display()))?;
        let _ = self.read_ahead_kb.set(before);
        self.set_queue("read_ahead_kb", &kib.to_string())
    }

    /// Sets the maximum number of requests in flight on this device. The default and the maximum
    /// are 128, unless the module was loaded with another `hw_queue_depth`. The next device of this
    /// number has 128 again.
    pub fn set_nr_requests(&self, requests: u32) -> Result<()> {
        self.set_queue("nr_requests", &requests.to_string())
    }

    /// Waits until no filesystem on the device is mounted. One that was unmounted here stays mounted
    /// in mount namespaces that other processes have made meanwhile, with its caches.
    pub(crate) fn wait_until_unmounted(&self) -> Result<()> {
        let doing = || {
            format!(
                "waiting for other mount namespaces with {}",
                self.path.display()
            )
        };
        let give_up = Instant::now() + PATIENCE;
        loop {
            // A filesystem has its device open exclusively.
            let mut exclusive = OpenOptions::new();
            exclusive.read(true).custom_flags(libc::O_EXCL);
            match exclusive.open(&self.path) {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < give_up => {
                    thread::sleep(Duration::from_millis(2));
                }
                other => return other.map(drop).doing(doing),
            }
        }
    }

    /// Writes the device's own page cache back and drops it. A filesystem's metadata stays there
    /// while the device is open, also without a mount.
    pub(crate) fn flush_buffers(&self) -> Result<()> {
        sys::flush_buffers(&self.device)
            .doing(|| format!("flushing buffers of {}", self.path.display()))
    }

    fn set_queue(&self, name: &str, value: &str) -> Result<()> {
        let path = self.sysfs("queue").join(name);
        fs::write(&path, value).doing(|| format!("writing {value} to {}", path.display()))
    }

    fn sysfs(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/loop{}/{name}", self.number))
    }

    fn is_attached(&self) -> bool {
        fs::read_to_string(self.sysfs("loop/backing_file"))
            .is_ok_and(|backing| Path::new(backing.trim_end()) == self.backing)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _speed = self.disk.as_ref().map(|disk| {
            disk.release_all();
            disk.full_speed()
        });
        if let Some(before) = self.read_ahead_kb.get() {
            let _ = self.set_queue("read_ahead_kb", before);
        }
        // Fails if the device was already detached.
        let _ = sys::clear_loop(&self.device);
        // The device is detached when its last descriptor is closed. Replacing the field closes
        // this one.
        if let Ok(null) = File::open("/dev/null") {
            self.device = null;
        }
        let give_up = Instant::now() + Duration::from_secs(1);
        while self.is_attached() && Instant::now() < give_up {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn read_write(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Makes the device node. It is missing in a container with its own /dev.
fn make_node(path: &Path, number: u32) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|node| node.file_type().is_block_device()) {
        return Ok(());
    }
    let device = makedev(LOOP_MAJOR, number);
    match mknodat(CWD, path, FileType::BlockDevice, Mode::from(0o600), device) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
