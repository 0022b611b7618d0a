//! A plain loop over the library, without the harness: the cost of a hit by pread(2), by preadv2(2)
//! with RWF_NOWAIT, by nowait's blocking form, and by its future.
//!
//! ```console
//! $ cargo run --release --example hit_loop -- FILE [BLOCK]
//! ```
//! The ratios are to agree with those of `nowait-bench cached --file FILE --block 4K --threads 1
//! --contenders pread,preadv2,nowait,nowait-future --rounds 30` within 3 %.

use std::fs::File;
use std::future::Future;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rustix::io::{Errno, ReadWriteFlags};

const ROUNDS: usize = 31;
const READS: u64 = 200_000;
const NAMES: [&str; 4] = ["pread", "preadv2", "nowait", "future"];

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: hit_loop FILE [BLOCK]")?;
    let block: usize = args.next().map_or(Ok(4096), |arg| arg.parse())?;

    let std_file = File::open(&path)?;
    let blocks = std_file.metadata()?.len() / block as u64;
    let mut buf = vec![1u8; block];
    for index in 0..blocks {
        std_file.read_exact_at(&mut buf, index * block as u64)?;
    }
    let engine = nowait::Engine::new()?;
    let mut options = nowait::OpenOptions::new();
    let file = options.read(true).engine(&engine).blocking_open(&path)?;

    let mut times: [Vec<f64>; 4] = Default::default();
    for round in 0..ROUNDS {
        let offsets = || offsets(round, blocks, block);
        times[0].push(by_pread(&std_file, offsets(), &mut buf)?);
        times[1].push(by_preadv2(&std_file, offsets(), &mut buf)?);
        times[2].push(by_blocking_read(&file, offsets(), &mut buf)?);
        times[3].push(by_future(&file, offsets(), &mut buf)?);
    }
    report(&times);
    Ok(())
}

/// The offsets of the reads of one round.
fn offsets(round: usize, blocks: u64, block: usize) -> impl Iterator<Item = u64> {
    let mut state = round as u64 + 1;
    (0..READS).map(move |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % blocks * block as u64
    })
}

/// The seconds that all reads take by pread(2).
fn by_pread(
    file: &File,
    offsets: impl Iterator<Item = u64>,
    buf: &mut [u8],
) -> Result<f64, Failure> {
    let start = Instant::now();
    for offset in offsets {
        assert_eq!(file.read_at(buf, offset)?, buf.len());
    }
    Ok(start.elapsed().as_secs_f64())
}

/// The seconds that all reads take by preadv2(2) with RWF_NOWAIT.
fn by_preadv2(
    file: &File,
    offsets: impl Iterator<Item = u64>,
    buf: &mut [u8],
) -> Result<f64, Failure> {
    let start = Instant::now();
    for offset in offsets {
        let read = match preadv2_nowait(file, buf, offset) {
            // The kernel has taken a page back, or refuses the flag.
            Err(Errno::AGAIN | Errno::OPNOTSUPP) => file.read_at(buf, offset)?,
            other => other?,
        };
        assert_eq!(read, buf.len());
    }
    Ok(start.elapsed().as_secs_f64())
}

/// The seconds that all reads take by nowait's blocking form.
fn by_blocking_read(
    file: &nowait::File,
    offsets: impl Iterator<Item = u64>,
    buf: &mut [u8],
) -> Result<f64, Failure> {
    let start = Instant::now();
    for offset in offsets {
        assert_eq!(file.blocking_read_at(&mut buf[..], offset)?, buf.len());
    }
    Ok(start.elapsed().as_secs_f64())
}

/// The seconds that all reads take by nowait's future.
fn by_future(
    file: &nowait::File,
    offsets: impl Iterator<Item = u64>,
    buf: &mut Vec<u8>,
) -> Result<f64, Failure> {
    let block = buf.len();
    let mut owned = std::mem::take(buf);
    let start = Instant::now();
    let mut cx = Context::from_waker(Waker::noop());
    for offset in offsets {
        let mut read = pin!(file.read_at(owned, offset));
        let done = match read.as_mut().poll(&mut cx) {
            Poll::Ready(done) => done,
            Poll::Pending => pollster::block_on(read),
        };
        assert_eq!(done.result?, block);
        owned = done.buf;
    }
    let seconds = start.elapsed().as_secs_f64();
    *buf = owned;
    Ok(seconds)
}

/// Prints the median time of a read by each way, and its median ratio to pread(2).
fn report(times: &[Vec<f64>; 4]) {
    let pread = &times[0];
    for (name, times) in NAMES.iter().zip(times) {
        let mut ratios: Vec<f64> = times.iter().zip(pread).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        let mut times = times.clone();
        times.sort_by(f64::total_cmp);
        let nanoseconds = times[ROUNDS / 2] / READS as f64 * 1e9;
        println!("{name:7} {nanoseconds:7.1} ns {:6.3}", ratios[ROUNDS / 2]);
    }
}

/// A function that is called, as the C library's is: the first return after a system call costs much
/// on some processors, and pread(2) by std::fs has it too.
#[inline(never)]
fn preadv2_nowait(file: &File, buf: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    rustix::io::preadv2(
        file,
        &mut [IoSliceMut::new(buf)],
        offset,
        ReadWriteFlags::NOWAIT,
    )
}
