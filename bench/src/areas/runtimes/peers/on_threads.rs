//! Work on threads of its own.

use std::io;

/// Runs `work` on this many threads, with the number of the thread. Returns when all threads are
/// done, or after the first error.
pub fn run(
    threads: u64,
    work: impl Fn(u64) -> io::Result<()> + Clone + Send + 'static,
) -> io::Result<()> {
    let spawn = |thread| {
        let work = work.clone();
        std::thread::spawn(move || work(thread))
    };
    let threads: Vec<_> = (0..threads).map(spawn).collect();
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("panicked"))??;
    }
    Ok(())
}
