//! The program `slowdisk` mounts a filesystem on a slow disk until Ctrl-C.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::Parser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use slowdisk::{Error, Filesystem, LoopDevice, Result, ServedFlush, SlowDisk, TestMount};

/// Makes a disk with configurable latency, queue depth and seek cost, and mounts a filesystem on
/// it.
///
/// Prints the device and the mount point. Ctrl-C removes everything.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Size in bytes, or with a unit K, M, G or T (powers of 1024)
    #[arg(long, default_value = "1G", value_parser = bytes)]
    size: u64,
    /// Time that each request takes: a number with us, ms or s
    #[arg(long, default_value = "1ms", value_parser = duration)]
    latency: Duration,
    /// Additional time of a request that does not begin at the end of the previous one. The device
    /// then says that it rotates
    #[arg(long, default_value = "0ms", value_parser = duration)]
    seek: Duration,
    /// Maximum number of requests in service
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    queue: u16,
    /// Filesystem: ext4, xfs, btrfs or overlay; "none" makes only the loop device; "flush" is a
    /// directory in memory, whose files return EDQUOT when they are closed
    #[arg(long, default_value = "ext4", value_parser = filesystem)]
    fs: Wanted,
    /// Readahead of the device in KiB
    #[arg(long)]
    read_ahead: Option<u32>,
    /// Store the disk's bytes in a sparse file in DIR instead of in memory
    #[arg(long, value_name = "DIR")]
    backing: Option<PathBuf>,
    /// Log every request to FILE: time_us,op,offset,len,latency_us
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Mount point [default: a new temporary directory]
    mountpoint: Option<PathBuf>,
}

#[derive(Clone, Copy)]
enum Wanted {
    Device,
    Filesystem(Filesystem),
    Flush,
}

/// The made device or mount.
enum Made {
    Device(LoopDevice),
    Filesystem(TestMount),
    Flush(ServedFlush),
}

/// The number of EDQUOT.
const EDQUOT: i32 = 122;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slowdisk: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    // From here on signals are collected. They are handled after the disk is made.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let mut log = match &args.log {
        Some(path) => Some(BufWriter::new(File::create(path)?)),
        None => None,
    };
    let mut builder = SlowDisk::builder()
        .size(args.size)
        .latency(args.latency)
        .seek(args.seek)
        .queue(usize::from(args.queue))
        .record(log.is_some());
    if let Some(dir) = &args.backing {
        builder = builder.backing_dir(dir);
    }
    let disk = builder.build()?;
    let made = make(args, &disk)?;
    if let (Some(kib), Some(device)) = (args.read_ahead, made.device()) {
        device.set_read_ahead_kb(kib)?;
    }
    println!("{made}");

    thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel::<()>();
        let writer = log.as_mut().map(|log| {
            let disk = &disk;
            scope.spawn(move || write_log(log, disk, &stopped))
        });
        signals.forever().next();
        drop(made);
        drop(stop);
        match writer.map(|writer| writer.join()) {
            Some(Ok(Err(error))) => Err(Error::from(error)),
            _ => Ok(()),
        }
    })
}

fn make(args: &Args, disk: &SlowDisk) -> Result<Made> {
    match args.fs {
        Wanted::Device => LoopDevice::on(disk).map(Made::Device),
        Wanted::Flush => ServedFlush::new(EDQUOT).map(Made::Flush),
        Wanted::Filesystem(filesystem) => {
            let mut builder = TestMount::builder(filesystem);
            if let Some(mountpoint) = &args.mountpoint {
                builder = builder.at(mountpoint);
            }
            builder.on(disk).map(Made::Filesystem)
        }
    }
}

/// Writes the disk's log once a second, and a last time when it is told to stop.
fn write_log(
    log: &mut impl Write,
    disk: &SlowDisk,
    stopped: &mpsc::Receiver<()>,
) -> std::io::Result<()> {
    writeln!(log, "time_us,op,offset,len,latency_us")?;
    loop {
        let wake = stopped.recv_timeout(Duration::from_secs(1));
        for entry in disk.take_log() {
            let (time, latency) = (entry.time.as_micros(), entry.latency.as_micros());
            let (op, offset, len) = (entry.op, entry.offset, entry.len);
            writeln!(log, "{time},{op},{offset},{len},{latency}")?;
        }
        log.flush()?;
        if wake != Err(RecvTimeoutError::Timeout) {
            return Ok(());
        }
    }
}

impl Made {
    fn device(&self) -> Option<&LoopDevice> {
        match self {
            Made::Device(device) => Some(device),
            Made::Filesystem(mount) => mount.device(),
            Made::Flush(_) => None,
        }
    }
}

impl std::fmt::Display for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let device = self.device().map_or(Path::new("-"), LoopDevice::path);
        match self {
            Made::Device(_) => write!(f, "{}", device.display()),
            Made::Filesystem(mount) => {
                write!(f, "{} {}", device.display(), mount.path().display())
            }
            Made::Flush(served) => write!(f, "- {}", served.path().display()),
        }
    }
}

fn filesystem(name: &str) -> Result<Wanted, String> {
    match name {
        "none" => return Ok(Wanted::Device),
        "flush" => return Ok(Wanted::Flush),
        _ => {}
    }
    match name.parse()? {
        Filesystem::Tmpfs => Err("tmpfs does not use a disk".into()),
        filesystem => Ok(Wanted::Filesystem(filesystem)),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = number_and_unit(text);
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("unknown unit {unit:?}; use K, M, G or T")),
    };
    let number: u64 = number.parse().map_err(|_| "not a whole number")?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "too large".into())
}

fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = number_and_unit(text);
    let unit = match unit {
        "us" | "µs" => Duration::from_micros(1),
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        _ => return Err("needs a unit: us, ms or s".into()),
    };
    let number: f64 = number.parse().map_err(|_| "not a number")?;
    Duration::try_from_secs_f64(number * unit.as_secs_f64()).map_err(|error| error.to_string())
}

fn number_and_unit(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times() {
        assert_eq!(bytes("1G"), Ok(1 << 30));
        assert_eq!(bytes("512MiB"), Ok(512 << 20));
        assert_eq!(bytes("4096"), Ok(4096));
        assert!(bytes("1X").is_err());
        assert!(bytes("99999999T").is_err());
        assert_eq!(duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(duration("70us"), Ok(Duration::from_micros(70)));
        assert!(duration("5").is_err());
        assert!(duration("ms").is_err());
    }
}
