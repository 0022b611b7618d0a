//! liburing: the loop in `liburing.c`.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

use nowait::buffer::BufferPool;

use super::task::{Done, Task};

/// `struct task` of the C file.
#[repr(C)]
struct CTask {
    files: *const i32,
    n_files: u32,
    blocks: u64,
    block: u32,
    depth: u32,
    batch: u32,
    registered: i32,
    seconds: f64,
    seed: u64,
    stop: *const bool,
}

unsafe extern "C" {
    fn liburing_loop(task: *const CTask, memory: *mut u8, took: *mut f64) -> i64;
}

/// Reads for a turn.
pub fn read(task: &Task) -> io::Result<Done> {
    let files: Vec<i32> = task.files.iter().map(AsRawFd::as_raw_fd).collect();
    let pool = BufferPool::new(1, task.depth as usize * task.block as usize)?;
    let mut memory = pool.take().ok_or_else(|| io::Error::other("no memory"))?;
    let c_task = CTask {
        files: files.as_ptr(),
        n_files: files.len() as u32,
        blocks: task.blocks,
        block: task.block,
        depth: task.depth,
        batch: task.batch,
        registered: i32::from(task.registered),
        seconds: task.time.as_secs_f64(),
        seed: task.seed,
        stop: task.stop.as_ptr(),
    };
    let mut seconds = 0.0;
    // SAFETY: the task has the layout of the C structure, its files are open, its flag is valid,
    // and the memory has a block for each read in flight. The loop reads the flag atomically and
    // waits for all reads before it returns.
    let reads = unsafe { liburing_loop(&c_task, memory.as_mut_ptr(), &mut seconds) };
    match u64::try_from(reads) {
        Ok(reads) => Ok(Done { reads, seconds }),
        Err(_) => Err(io::Error::from_raw_os_error(-reads as i32)),
    }
}
