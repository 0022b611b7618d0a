//! A time limit for tests that could hang.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::wait::LONG;

/// Ends the process with a message if the guarded code hangs.
pub struct Limit(Arc<AtomicBool>);

impl Limit {
    pub fn new(what: String) -> Limit {
        let test = std::thread::current().name().unwrap_or("?").to_owned();
        eprintln!("{test}: {what}");
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        std::thread::spawn(move || {
            let end = Instant::now() + 4 * LONG;
            while !ended.load(Ordering::Relaxed) {
                if Instant::now() > end {
                    // Not by a panic: no thread joins this one, and the hung thread never ends.
                    let hung = format!("\n{test}: {what}: hangs\n");
                    let _ = rustix::io::write(std::io::stderr(), hung.as_bytes());
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Limit(over)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
