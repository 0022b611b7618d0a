//! zram: a block device in compressed memory, removed on drop. It is available in most kernels and
//! needs no backing file.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;

use crate::error::{Doing, Error, Result};
use crate::janitor::Claim;
use crate::missing::{self, Missing};

const CONTROL: &str = "/sys/class/zram-control";

/// A new zram device. It completes every request during its submission, in blocks of a page. A page
/// that was never written, or whose words are all equal, uses no memory.
#[derive(Debug)]
pub struct Zram {
    number: u32,
    path: PathBuf,
    /// Dropped after the device is removed.
    _claim: Claim,
}

impl Zram {
    /// Returns `Ok` if a zram device can be made here. Loads the kernel's module if necessary.
    pub fn available() -> Result<(), Missing> {
        missing::privileged()?;
        let there = || Path::new(CONTROL).join("hot_add").exists();
        if !there() {
            // With num_devices=0, devices are made only through the control file.
            let _ = Command::new("modprobe")
                .args(["zram", "num_devices=0"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
        if there() {
            Ok(())
        } else {
            Err(Missing::new("the kernel has no zram (modprobe zram)"))
        }
    }

    /// Makes a device of `size` bytes.
    pub fn new(size: u64) -> Result<Zram> {
        Zram::available()?;
        let hot_add = Path::new(CONTROL).join("hot_add");
        let number =
            fs::read_to_string(&hot_add).doing(|| format!("reading {}", hot_add.display()))?;
        let number: u32 = number.trim().parse().map_err(|_| {
            let cause = io::Error::from(io::ErrorKind::InvalidData);
            Error::new(format!("{} returned {number:?}", hot_add.display()), cause)
        })?;
        let path = PathBuf::from(format!("/dev/zram{number}"));
        let zram = Zram {
            number,
            _claim: Claim::remove_zram(number)?,
            path,
        };
        let disksize = zram.sysfs("disksize");
        fs::write(&disksize, size.to_string())
            .doing(|| format!("writing {size} to {}", disksize.display()))?;
        zram.make_node()
            .doing(|| format!("making {}", zram.path.display()))?;
        Ok(zram)
    }

    /// `/dev/zramN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn sysfs(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/zram{}/{name}", self.number))
    }

    /// Makes the device node. It is missing in a container with its own /dev.
    fn make_node(&self) -> io::Result<()> {
        if fs::metadata(&self.path).is_ok_and(|node| node.file_type().is_block_device()) {
            return Ok(());
        }
        let numbers = fs::read_to_string(self.sysfs("dev"))?;
        let parsed = numbers
            .trim()
            .split_once(':')
            .and_then(|(major, minor)| Some(makedev(major.parse().ok()?, minor.parse().ok()?)));
        let device = parsed.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        match mknodat(
            CWD,
            &self.path,
            FileType::BlockDevice,
            Mode::from(0o600),
            device,
        ) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        // The device is busy while a process has it open, for example udev.
        let give_up = Instant::now() + Duration::from_secs(1);
        while fs::write(self.sysfs("reset"), "1")
            .is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
            && Instant::now() < give_up
        {
            thread::sleep(Duration::from_millis(1));
        }
        let _ = fs::write(
            Path::new(CONTROL).join("hot_remove"),
            self.number.to_string(),
        );
    }
}
