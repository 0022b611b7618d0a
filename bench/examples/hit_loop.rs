//! A plain loop over the library, without the harness: the cost of a hit by pread(2), by preadv2(2)
//! with RWF_NOWAIT, by nowait's blocking form, by its future, and by a future that uses answers about
//! residency for 100 ms where NOWAIT is refused: on overlayfs.
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
use std::time::{Duration, Instant};

use rustix::io::{Errno, ReadWriteFlags};

const ROUNDS: usize = 31;
const READS: u64 = 200_000;
const NAMES: [&str; 5] = ["pread", "preadv2", "nowait", "future", "remembers"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: hit_loop FILE [BLOCK]")?;
    let block: usize = args.next().map_or(Ok(4096), |arg| arg.parse())?;

    let std_file = File::open(&path)?;
    let blocks = std_file.metadata()?.len() / block as u64;
    let mut buf = vec![1u8; block];
    for index in 0..blocks {
        std_file.read_exact_at(&mut buf, index * block as u64)?;
    }
    let open = |options: nowait::engine::Options| {
        let engine = options.build()?;
        let mut options = nowait::OpenOptions::new();
        options.read(true).engine(&engine).blocking_open(&path)
    };
    let options = nowait::Engine::options;
    let file = open(options())?;
    let remembers = open(options().residency_memory(Duration::from_millis(100)))?;

    let mut times: [Vec<f64>; 5] = Default::default();
    for round in 0..ROUNDS {
        let offsets = || {
            let mut state = round as u64 + 1;
            (0..READS).map(move |_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) % blocks * block as u64
            })
        };
        let start = Instant::now();
        for offset in offsets() {
            assert_eq!(std_file.read_at(&mut buf, offset)?, block);
        }
        times[0].push(start.elapsed().as_secs_f64());

        let start = Instant::now();
        for offset in offsets() {
            let read = match preadv2_nowait(&std_file, &mut buf, offset) {
                // The kernel has taken a page back, or refuses the flag.
                Err(Errno::AGAIN | Errno::OPNOTSUPP) => std_file.read_at(&mut buf, offset)?,
                other => other?,
            };
            assert_eq!(read, block);
        }
        times[1].push(start.elapsed().as_secs_f64());

        let start = Instant::now();
        for offset in offsets() {
            assert_eq!(file.blocking_read_at(&mut buf[..], offset)?, block);
        }
        times[2].push(start.elapsed().as_secs_f64());

        for (file, times) in [&file, &remembers].into_iter().zip(&mut times[3..]) {
            let start = Instant::now();
            let mut cx = Context::from_waker(Waker::noop());
            for offset in offsets() {
                let mut read = pin!(file.read_at(buf, offset));
                let done = match read.as_mut().poll(&mut cx) {
                    Poll::Ready(done) => done,
                    Poll::Pending => pollster::block_on(read),
                };
                assert_eq!(done.result?, block);
                buf = done.buf;
            }
            times.push(start.elapsed().as_secs_f64());
        }
    }

    let pread = times[0].clone();
    for (name, times) in NAMES.iter().zip(&times) {
        let mut ratios: Vec<f64> = times.iter().zip(&pread).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        let mut times = times.clone();
        times.sort_by(f64::total_cmp);
        let nanoseconds = times[ROUNDS / 2] / READS as f64 * 1e9;
        println!("{name:9} {nanoseconds:7.1} ns {:6.3}", ratios[ROUNDS / 2]);
    }
    Ok(())
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
