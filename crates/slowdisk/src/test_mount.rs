//! A whole filesystem under test in one call: image or slow disk, loop device, mkfs, mount.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{FullSpeed, SlowDisk};
use crate::error::{Doing, Error, Result};
use crate::filesystem::Filesystem;
use crate::loop_device::LoopDevice;
use crate::mount::Mount;
use crate::scratch::Scratch;

/// The smallest round size that xfs takes, with room for files.
const IMAGE_SIZE: u64 = 512 << 20;

/// A fresh filesystem, mounted on a directory of its own. Dropped, everything is taken down; the
/// disk's faults are released first, so that nothing waits for them.
///
/// Fields are dropped in this order.
#[derive(Debug)]
pub struct TestMount {
    mount: Mount,
    lower: Option<PathBuf>,
    base: Option<Box<TestMount>>,
    device: Option<LoopDevice>,
    disk: Option<SlowDisk>,
    /// From the start of the drop to its end.
    speed: Option<FullSpeed>,
    _scratch: Scratch,
}

/// How a filesystem under test is to be made; from [`TestMount::builder`].
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
    /// Mounts a fresh `filesystem`, where need be on a sparse image of 512 MiB.
    pub fn new(filesystem: Filesystem) -> Result<Self> {
        TestMount::builder(filesystem).build()
    }

    /// Mounts a fresh `filesystem` on a slow disk. The disk is at full speed meanwhile, and its log
    /// is empty afterwards.
    ///
    /// # Errors
    ///
    /// As for [`TestMountBuilder::on`].
    pub fn on(disk: &SlowDisk, filesystem: Filesystem) -> Result<Self> {
        TestMount::builder(filesystem).on(disk)
    }

    /// Mounts an overlay whose lower and upper directories are on `base`. Files that `base` has in
    /// `lower/` are in the overlay.
    pub fn overlay(base: TestMount) -> Result<Self> {
        TestMount::builder(Filesystem::Overlay).overlay_on(base)
    }

    /// A fresh `filesystem`, to be described further.
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

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Writes all its dirty data and metadata back.
    pub fn sync(&self) -> Result<()> {
        let path = self.path();
        let doing = || format!("syncing {}", path.display());
        let root = File::open(path).doing(doing)?;
        rustix::fs::syncfs(root).doing(doing)
    }

    /// Mounts it anew, so that the kernel has nothing of it in its caches: no pages, no inodes, no
    /// names. A slow disk is at full speed meanwhile, and its log is empty afterwards. Other
    /// filesystems keep their caches, which [`drop_caches`](crate::drop_caches) would take.
    ///
    /// # Errors
    ///
    /// If somebody uses it; for a filesystem that has no device, whose content would be lost.
    pub fn remount(&self) -> Result<()> {
        if self.device.is_none() {
            let cause = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(Error::new("mounting again what has no device", cause));
        }
        let speed = self.disk.as_ref().map(SlowDisk::full_speed);
        self.mount.renew()?;
        drop(speed);
        self.disk.as_ref().map(SlowDisk::take_log);
        Ok(())
    }

    /// The loop device that it is on, or that its lower filesystem is on.
    pub fn device(&self) -> Option<&LoopDevice> {
        let base = || self.base.as_ref()?.device();
        self.device.as_ref().or_else(base)
    }

    /// Of an overlay: the lower directory, on its own filesystem. Change it before, not while, the
    /// overlay shows the file.
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
    /// Bytes of the image, or of the tmpfs. Without effect on a slow disk, which has its own.
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// Bytes of a sector of the image's device, a power of two from 512 to a page. Without effect on a
    /// slow disk.
    pub fn sector(mut self, bytes: u32) -> Self {
        self.sector = bytes;
        self
    }

    /// One more argument for the mkfs program.
    pub fn mkfs_arg(mut self, arg: impl Into<String>) -> Self {
        self.mkfs_args.push(arg.into());
        self
    }

    /// One more mount option of the filesystem's own (see [`Mount::new`]).
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// Where to make the image and the directory to mount on. Default: where temporary files go.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Mounts on this directory instead of on a fresh one.
    pub fn at(mut self, mount_point: impl Into<PathBuf>) -> Self {
        self.at = Some(mount_point.into());
        self
    }

    /// Makes and mounts it, where need be on a sparse image.
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

    /// Makes and mounts it on a slow disk, an overlay's base likewise.
    ///
    /// # Errors
    ///
    /// For a filesystem that has no device, when something is missing, or when a step fails.
    pub fn on(self, disk: &SlowDisk) -> Result<TestMount> {
        self.filesystem.available()?;
        let speed = disk.full_speed();
        let mounted = match self.filesystem {
            Filesystem::Tmpfs => {
                let cause = io::Error::from(io::ErrorKind::InvalidInput);
                return Err(Error::new("tmpfs has no device to be on", cause));
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

    /// The ext4 below an overlay. Options and mount point are the overlay's, the rest is the base's.
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

    /// Mounts an overlay with these options on `base`, as [`TestMount::overlay`] does.
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

/// A path as overlayfs takes it: commas and colons mean something there.
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
