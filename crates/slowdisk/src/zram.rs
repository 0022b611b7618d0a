//! A block device in compressed memory, gone on drop: zram, of the kernel's block devices in memory
//! the one that is built into most and needs no file below it.

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

/// A zram device of our own. It serves every request within its submission, in blocks of a page. A
/// page that was never written, or all words of which are the same, takes no memory.
#[derive(Debug)]
pub struct Zram {
    number: u32,
    path: PathBuf,
    /// Forgotten after the device is gone.
    _claim: Claim,
}

impl Zram {
    /// Whether one can be made here. Loads the kernel's module if need be.
    pub fn available() -> Result<(), Missing> {
        missing::privileged()?;
        let there = || Path::new(CONTROL).join("hot_add").exists();
        if !there() {
            // A module whose devices are made by the control file alone.
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

    /// Makes one of so many bytes.
    pub fn new(size: u64) -> Result<Zram> {
        Zram::available()?;
        let hot_add = Path::new(CONTROL).join("hot_add");
        let number =
            fs::read_to_string(&hot_add).doing(|| format!("reading {}", hot_add.display()))?;
        let number: u32 = number.trim().parse().map_err(|_| {
            let cause = io::Error::from(io::ErrorKind::InvalidData);
            Error::new(format!("{} said {number:?}", hot_add.display()), cause)
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

    /// In a container with its own /dev, a device that the kernel made has no node.
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
        // Busy as long as somebody has it open: udev may be looking.
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
