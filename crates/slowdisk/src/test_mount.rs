//! A mounted filesystem for tests, made in one call: image or slow disk, loop device, mkfs, mount.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{FullSpeed, SlowDisk};
use crate::error::{Doing, Error, Result};
use crate::filesystem::Filesystem;
use crate::loop_device::LoopDevice;
use crate::mount::Mount;
use crate::scratch::Scratch;

/// The default size of an image in bytes: enough for xfs (at least 300 MiB) and for files.
const IMAGE_SIZE: u64 = 512 << 20;

/// The fate of a filesystem's log when the filesystem is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// It is written to the device first.
    Written,
    /// It is lost, with the changes that are only in it.
    Lost,
}

/// A new filesystem, mounted on its own directory. Drop undoes everything. It first releases the
/// disk's faults, so that it does not wait for them.
///
/// Fields are dropped in this order.
#[derive(Debug)]
pub struct TestMount {
    mount: Mount,
    lower: Option<PathBuf>,
    base: Option<Box<TestMount>>,
    device: Option<LoopDevice>,
    disk: Option<SlowDisk>,
    /// Full speed from the start of drop to its end.
    speed: Option<FullSpeed>,
    _scratch: Scratch,
}

/// The options of a filesystem; from [`TestMount::builder`].
#[derive(Clone, Debug)]
pub struct TestMountBuilder {
    filesystem: Filesystem,
    size: u64,
    sector: u32,
    mkfs_args: Vec<String>,
    options: Vec<String>,
    dir: Option<PathBuf>,
    at: Option<PathBuf>,
}

impl TestMount {
    /// Mounts a new `filesystem`, on a sparse image of 512 MiB if it needs a device.
    pub fn new(filesystem: Filesystem) -> Result<Self> {
        TestMount::builder(filesystem).build()
    }

    /// Mounts a new `filesystem` on a slow disk. The disk runs at full speed meanwhile, and its log
    /// is empty afterwards.
    ///
    /// # Errors
    ///
    /// As for [`TestMountBuilder::on`].
    pub fn on(disk: &SlowDisk, filesystem: Filesystem) -> Result<Self> {
        TestMount::builder(filesystem).on(disk)
    }

    /// Mounts a new `filesystem` on a slow disk, with the files that `fill` makes in the mount
    /// point. None of them is cached.
    ///
    /// # Errors
    ///
    /// As for [`TestMountBuilder::on`].
    pub fn filled(
        disk: &SlowDisk,
        filesystem: Filesystem,
        fill: impl FnOnce(&Path),
    ) -> Result<Self> {
        let mount = TestMount::on(disk, filesystem)?;
        let speed = disk.full_speed();
        fill(mount.path());
        mount.remount()?;
        drop(speed);
        Ok(mount)
    }

    /// Mounts an overlay whose lower and upper directories are on `base`. The overlay shows the
    /// files in `lower/` of `base`.
    pub fn overlay(base: TestMount) -> Result<Self> {
        TestMount::builder(Filesystem::Overlay).overlay_on(base)
    }

    /// The options for a new `filesystem`.
    pub fn builder(filesystem: Filesystem) -> TestMountBuilder {
        TestMountBuilder {
            filesystem,
            size: IMAGE_SIZE,
            sector: 0,
            mkfs_args: Vec::new(),
            options: Vec::new(),
            dir: None,
            at: None,
        }
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Writes all dirty data and metadata of the filesystem back.
    pub fn sync(&self) -> Result<()> {
        let path = self.path();
        let doing = || format!("syncing {}", path.display());
        let root = File::open(path).doing(doing)?;
        rustix::fs::syncfs(root).doing(doing)
    }

    /// Unmounts and mounts the filesystem, so that the kernel caches none of its pages, inodes and
    /// names. A slow disk runs at full speed meanwhile, and its log is empty afterwards. The caches
    /// of other filesystems are kept, unlike with [`drop_caches`](crate::drop_caches). Waits until
    /// other mount namespaces with the filesystem are gone.
    ///
    /// # Errors
    ///
    /// If the filesystem is in use, or has no device, because its content would be lost.
    pub fn remount(&self) -> Result<()> {
        let speed = self.disk.as_ref().map(SlowDisk::full_speed);
        match (&self.device, &self.base) {
            (Some(device), _) => self.mount.renew_after(|| {
                device.wait_until_unmounted()?;
                device.flush_buffers()
            })?,
            (None, Some(base)) => self.mount.renew_after(|| base.remount())?,
            (None, None) => {
                let cause = io::Error::from(io::ErrorKind::InvalidInput);
                return Err(Error::new(
                    "mounting a filesystem without a device again",
                    cause,
                ));
            }
        }
        drop(speed);
        self.disk.as_ref().map(SlowDisk::take_log);
        Ok(())
    }

    /// Ends the filesystem as a failure of its device or, with [`Log::Lost`], as a power cut does:
    /// data and metadata that were not synced never reach the device. Each further operation on the
    /// filesystem fails until [`remount`](TestMount::remount), which shows what has reached it.
    ///
    /// # Errors
    ///
    /// If the filesystem cannot be shut down: all except ext4 and xfs.
    pub fn shut_down(&self, log: Log) -> Result<()> {
        let path = self.path();
        let doing = || format!("shutting down {}", path.display());
        let root = File::open(path).doing(doing)?;
        crate::sys::shut_down(&root, log == Log::Written).doing(doing)
    }

    /// The loop device of the filesystem, or of its lower filesystem.
    pub fn device(&self) -> Option<&LoopDevice> {
        let base = || self.base.as_ref()?.device();
        self.device.as_ref().or_else(base)
    }

    /// The lower directory of an overlay, on its own filesystem. Change a file there only before it
    /// is used through the overlay.
    pub fn lower(&self) -> Option<&Path> {
        self.lower.as_deref()
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            disk.release_all();
            self.speed = Some(disk.full_speed());
        }
    }
}

impl TestMountBuilder {
    /// Sets the size in bytes of the image or the tmpfs. It has no effect on a slow disk.
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// Sets the sector size in bytes of the image's device: a power of two from 512 to the page
    /// size. It has no effect on a slow disk.
    pub fn sector(mut self, bytes: u32) -> Self {
        self.sector = bytes;
        self
    }

    /// Adds an argument for the mkfs program.
    pub fn mkfs_arg(mut self, arg: impl Into<String>) -> Self {
        self.mkfs_args.push(arg.into());
        self
    }

    /// Adds a mount option of the filesystem (see [`Mount::new`]).
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// Sets the parent directory of the image and the mount point. Default: the directory for
    /// temporary files.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets the mount point. Default: a new directory.
    pub fn at(mut self, mount_point: impl Into<PathBuf>) -> Self {
        self.at = Some(mount_point.into());
        self
    }

    /// Makes and mounts the filesystem, on a sparse image if it needs a device.
    pub fn build(self) -> Result<TestMount> {
        self.filesystem.available()?;
        match self.filesystem {
            Filesystem::Tmpfs => self.tmpfs(),
            Filesystem::Overlay => {
                let base = self.base().build()?;
                self.overlay_on(base)
            }
            Filesystem::Ext4 | Filesystem::Xfs | Filesystem::Btrfs => {
                let scratch = Scratch::new(self.dir.as_deref())?;
                let image = scratch.path().join("image");
                File::create_new(&image)
                    .and_then(|file| file.set_len(self.size))
                    .doing(|| format!("making {}", image.display()))?;
                let device = LoopDevice::attach_with_sectors(&image, self.sector)?;
                self.on_device(scratch, device, None)
            }
        }
    }

    /// Makes and mounts the filesystem, or an overlay's base, on a slow disk.
    ///
    /// # Errors
    ///
    /// If the filesystem does not use a device, a requirement is missing, or a step fails.
    pub fn on(self, disk: &SlowDisk) -> Result<TestMount> {
        self.filesystem.available()?;
        let speed = disk.full_speed();
        let mounted = match self.filesystem {
            Filesystem::Tmpfs => {
                let cause = io::Error::from(io::ErrorKind::InvalidInput);
                return Err(Error::new("tmpfs does not use a device", cause));
            }
            Filesystem::Overlay => {
                let base = self.base().on(disk)?;
                self.overlay_on(base)?
            }
            Filesystem::Ext4 | Filesystem::Xfs | Filesystem::Btrfs => {
                let scratch = Scratch::new(self.dir.as_deref())?;
                let device = LoopDevice::on(disk)?;
                self.on_device(scratch, device, Some(disk.clone()))?
            }
        };
        mounted.sync()?;
        drop(speed);
        disk.take_log();
        Ok(mounted)
    }

    /// The options of the ext4 below an overlay. Mount options and mount point apply to the
    /// overlay, the others to the base.
    fn base(&self) -> TestMountBuilder {
        TestMountBuilder {
            filesystem: Filesystem::Ext4,
            options: Vec::new(),
            at: None,
            ..self.clone()
        }
    }

    fn tmpfs(mut self) -> Result<TestMount> {
        self.options.push(format!("size={}", self.size));
        let scratch = Scratch::new(self.dir.as_deref())?;
        let mount = self.mount(&scratch, Path::new("tmpfs"))?;
        Ok(TestMount {
            mount,
            lower: None,
            base: None,
            device: None,
            disk: None,
            speed: None,
            _scratch: scratch,
        })
    }

    fn on_device(
        self,
        scratch: Scratch,
        device: LoopDevice,
        disk: Option<SlowDisk>,
    ) -> Result<TestMount> {
        self.filesystem.make(device.path(), &self.mkfs_args)?;
        let mount = self.mount(&scratch, device.path())?;
        Ok(TestMount {
            mount,
            lower: None,
            base: None,
            device: Some(device),
            disk,
            speed: None,
            _scratch: scratch,
        })
    }

    /// Mounts an overlay with these options on `base`; see [`TestMount::overlay`].
    pub fn overlay_on(mut self, base: TestMount) -> Result<TestMount> {
        let root = base.path().to_owned();
        for name in ["lower", "upper", "work"] {
            let path = root.join(name);
            fs::create_dir_all(&path).doing(|| format!("making {}", path.display()))?;
            self.options
                .push(format!("{name}dir={}", overlay_word(&path)));
        }
        let scratch = Scratch::new(self.dir.as_deref())?;
        let mount = self.mount(&scratch, Path::new("overlay"))?;
        Ok(TestMount {
            mount,
            lower: Some(root.join("lower")),
            disk: base.disk.clone(),
            speed: None,
            base: Some(Box::new(base)),
            device: None,
            _scratch: scratch,
        })
    }

    fn mount(&self, scratch: &Scratch, source: &Path) -> Result<Mount> {
        let path = match &self.at {
            Some(path) => path.clone(),
            None => scratch.subdir("mnt")?,
        };
        let always = self.filesystem.mount_options();
        let options: Vec<&str> = [always]
            .into_iter()
            .chain(self.options.iter().map(String::as_str))
            .filter(|option| !option.is_empty())
            .collect();
        Mount::new(source, path, self.filesystem.name(), &options.join(","))
    }
}

/// A path in overlayfs's notation, which escapes commas and colons.
fn overlay_word(path: &Path) -> String {
    let mut word = String::new();
    for c in path.to_string_lossy().chars() {
        if matches!(c, ',' | ':' | '\\') {
            word.push('\\');
        }
        word.push(c);
    }
    word
}
