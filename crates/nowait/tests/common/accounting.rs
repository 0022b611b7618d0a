//! The kernel's counters for each thread (proc(5)).

/// The number of bytes that were read from block devices on behalf of this thread.
pub fn read_bytes() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    let line = io.lines().find_map(|l| l.strip_prefix("read_bytes: "))?;
    line.trim().parse().ok()
}

/// The number of bytes that were read from block devices on behalf of this thread during `act`.
pub fn device_bytes(act: impl FnOnce()) -> u64 {
    let before = read_bytes().expect("read_bytes");
    act();
    read_bytes().expect("read_bytes") - before
}
