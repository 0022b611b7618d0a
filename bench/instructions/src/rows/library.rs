//! Reads by the library: in the calling thread, as a future, by the file for tokio.

use std::fs::File;
use std::hint::black_box;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use nowait::read::{Cached, cached, try_cached};
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use crate::data::{BLOCK, BLOCKS, Failure, advise, offset, other_way, scattered};

/// An operation whose counts are known: one pread(2), one allocation, two reads of the clock.
pub fn known(path: &Path, count: usize) -> Result<(), Failure> {
    let file = File::open(path)?;
    let mut buf = [0; 16];
    for index in 0..count {
        let start = black_box(Instant::now());
        let number = black_box(Box::new(index));
        file.read_exact_at(&mut buf, *number as u64)?;
        black_box(start.elapsed());
    }
    Ok(())
}

pub fn read_cached(path: &Path, count: usize) -> Result<(), Failure> {
    let file = File::open(path)?;
    let mut buf = vec![0; BLOCK];
    for index in 0..count {
        match cached(&file, &mut buf[..], offset(index))? {
            Cached::All(BLOCK) => {}
            other => return Err(other_way(other)),
        }
    }
    Ok(())
}

pub fn try_cached_of(path: &Path, count: usize) -> Result<(), Failure> {
    let file = nowait::Handle::new(File::open(path)?)?;
    let mut buf = vec![0; BLOCK];
    for index in 0..count {
        match try_cached(&file, &mut buf[..], offset(index))? {
            Some(Cached::All(BLOCK)) => {}
            other => return Err(other_way(other)),
        }
    }
    Ok(())
}

pub fn blocking_read_at(path: &Path, count: usize) -> Result<(), Failure> {
    let file = nowait::File::blocking_open(path)?;
    let mut buf = vec![0; BLOCK];
    for index in 0..count {
        match file.blocking_read_at(&mut buf[..], offset(index))? {
            BLOCK => {}
            other => return Err(other_way(other)),
        }
    }
    Ok(())
}

/// A future that is ready at the first poll.
pub fn read_at(path: &Path, count: usize) -> Result<(), Failure> {
    let file = nowait::File::blocking_open(path)?;
    // The first read of a file on overlayfs learns that it has no `RWF_NOWAIT`, and is pending.
    let mut buf = pollster::block_on(file.read_at(vec![0; BLOCK], 0)).buf;
    let mut context = Context::from_waker(Waker::noop());
    for index in 0..count {
        let read = pin!(file.read_at(buf, offset(index)));
        let Poll::Ready(read) = read.poll(&mut context) else {
            return Err(other_way("a read that is pending"));
        };
        match read.result? {
            BLOCK => buf = read.buf,
            other => return Err(other_way(other)),
        }
    }
    Ok(())
}

/// A future that is pending at the first poll.
pub fn read_at_miss(path: &Path, count: usize) -> Result<(), Failure> {
    let file = nowait::File::blocking_open(path)?;
    advise(file.as_fd().as_raw_fd(), libc::POSIX_FADV_RANDOM)?;
    let mut buf = vec![0; BLOCK];
    let mut context = Context::from_waker(Waker::noop());
    for index in 0..count {
        let mut read = pin!(file.read_at(buf, scattered(index)));
        if read.as_mut().poll(&mut context).is_ready() {
            return Err(other_way("a read that is ready"));
        }
        let read = pollster::block_on(read);
        match read.result? {
            BLOCK => buf = read.buf,
            other => return Err(other_way(other)),
        }
    }
    Ok(())
}

/// In a runtime of tokio, whose tasks have a cooperative budget.
pub fn tokio_read_exact(path: &Path, count: usize) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let mut file = nowait::tokio::File::open(path).await?;
        let mut buf = vec![0; BLOCK];
        for index in 0..count {
            if index % BLOCKS == 0 {
                file.seek(std::io::SeekFrom::Start(0)).await?;
            }
            file.read_exact(&mut buf).await?;
        }
        Ok(())
    })
}
