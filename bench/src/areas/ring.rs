//! nowait's LocalEngine beside the bare ring, in the same loop: batches of random reads with O_DIRECT,
//! as many in flight as the depth, one thread on one core.
//!
//! `main` is the whole bench: rounds, in each of which everybody has a turn. Who reads how is in
//! `engine.rs` (nowait), `bare.rs` (the crate io-uring) and `liburing.rs` (a loop in C).
#![allow(unsafe_code)]

mod bare;
mod engine;
#[cfg(feature = "liburing")]
mod liburing;
mod places;

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use nowait_cli::problem::Problem;

use crate::harness::interval::{Interval, middle};

/// nowait's LocalEngine beside the crate io-uring, and beside liburing (--features liburing)
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The files or block devices to read, with at least a hundred blocks each
    #[arg(required = true)]
    paths: Vec<PathBuf>,

    /// How many are in flight
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: u32,

    /// How many are submitted, and waited for, at once
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch: u32,

    /// Bytes of one read
    #[arg(long, default_value_t = 4096)]
    block: u32,

    /// How long a turn takes, in seconds
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,

    /// How many rounds
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// The core to stay on
    #[arg(long, default_value_t = 0)]
    core: usize,
}

/// The work of one turn.
#[derive(Debug)]
pub struct Task {
    files: Vec<File>,
    /// Blocks of each file.
    blocks: u64,
    block: u32,
    depth: u32,
    batch: u32,
    time: Duration,
    seed: u64,
    /// Registered files and memory.
    fixed: bool,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    reads: u64,
    seconds: f64,
}

type Way = fn(&Task) -> std::io::Result<Done>;

const WAYS: &[(&str, Way)] = &[
    ("nowait", engine::read),
    ("io-uring", bare::read),
    #[cfg(feature = "liburing")]
    ("liburing", liburing::read),
];

/// Measures the loops and prints their figures.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    bench(args).map_err(|e| Problem::of("ring", e))?;
    Ok(ExitCode::SUCCESS)
}

fn bench(args: &Args) -> std::io::Result<()> {
    let open = |path: &PathBuf| {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECT).open(path)
    };
    let mut task = Task {
        files: args.paths.iter().map(open).collect::<Result<_, _>>()?,
        blocks: u64::MAX,
        block: args.block,
        depth: args.depth,
        batch: args.batch.min(args.depth),
        time: Duration::from_secs_f64(args.seconds),
        seed: 0,
        fixed: false,
    };
    for mut file in &task.files {
        let blocks = file.seek(SeekFrom::End(0))? / u64::from(task.block);
        task.blocks = task.blocks.min(blocks);
    }
    if task.blocks < 100 {
        return Err(std::io::Error::other(
            "a file has less than a hundred blocks",
        ));
    }
    stay_on(args.core)?;
    println!(
        "{:<8}{:<10}{:>9}{:>10}   times the bare one's: reads/s, processor time of a read",
        "", "", "kIOPS", "CPU us"
    );
    for fixed in [false, true] {
        task.fixed = fixed;
        let mut figures = vec![(Vec::new(), Vec::new()); WAYS.len()];
        for round in 0..args.rounds as usize {
            task.seed = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(round as u64 + 1);
            for i in (0..WAYS.len()).map(|i| (i + round) % WAYS.len()) {
                let before = processor_time();
                let done = WAYS[i].1(&task)?;
                let used = processor_time() - before;
                figures[i].0.push(done.reads as f64 / done.seconds);
                figures[i].1.push(used / done.reads.max(1) as f64);
            }
        }
        let ours = figures[0].clone();
        for (i, ((name, _), (iops, cpu))) in WAYS.iter().zip(&figures).enumerate() {
            let what = if fixed { "fixed" } else { "plain" };
            let of = |figures: &[f64]| middle(&mut figures.to_vec());
            let (iops_of, cpu_of) = (of(iops) / 1e3, of(cpu) * 1e6);
            print!("{what:<8}{name:<10}{iops_of:>9.1}{cpu_of:>10.3}");
            if i > 0 {
                let of = |a: &[f64], b: &[f64]| ratio(a, b).map_or_else(String::new, say);
                print!("   nowait: {}, {}", of(&ours.0, iops), of(&ours.1, cpu));
            }
            println!();
        }
    }
    println!(
        "medians over {} rounds; ratios: medians of those within each round (range that holds the true \
         one with {:.0} %)",
        args.rounds,
        100.0 * Interval::coverage(args.rounds as usize)
    );
    Ok(())
}

fn say(of: Interval) -> String {
    format!("{:.3} ({:.3}-{:.3})", of.median, of.low95, of.high95)
}

/// Has this thread stay on one core.
fn stay_on(core: usize) -> std::io::Result<()> {
    // SAFETY: all zeroes is an empty set; `CPU_SET` writes into it, within its bounds, and the kernel
    // only reads it.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core.min(libc::CPU_SETSIZE as usize - 1), &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    if done == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Seconds of processor time of this process.
fn processor_time() -> f64 {
    // SAFETY: all zeroes is a valid `timespec`, and the kernel writes at most one.
    let t = unsafe {
        let mut t: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t);
        t
    };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// The ratios of A's figures to B's, paired by round; `None` of none.
fn ratio(a: &[f64], b: &[f64]) -> Option<Interval> {
    let mut ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b.max(1e-9)).collect();
    (!ratios.is_empty()).then(|| Interval::of(&mut ratios))
}
