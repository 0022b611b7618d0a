//! Time limits. They end a test that hangs, and measure nothing: no step takes as long on a busy machine.

use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A step of a test that takes this long hangs.
pub const LONG: Duration = Duration::from_secs(300);

/// The pause between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until a condition holds.
///
/// # Panics
/// With the message `what`, if the condition does not hold after [`LONG`].
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not after {LONG:?}");
        std::thread::sleep(PAUSE);
    }
}

/// The limit of a process, which may have many steps. The limits of its steps report more than this one.
const PROCESS: Duration = Duration::from_secs(6 * LONG.as_secs());

/// Waits until a process has ended.
///
/// # Errors
/// The process hangs. It was killed.
pub fn ended(child: &mut Child) -> Result<ExitStatus, String> {
    let end = Instant::now() + PROCESS;
    loop {
        if let Some(status) = child.try_wait().expect("the child of this process") {
            return Ok(status);
        }
        if Instant::now() > end {
            child.kill().expect("the child of this process");
            child.wait().expect("the child of this process");
            return Err(format!("it hangs: killed after {PROCESS:?}"));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Ends the test program with a message if the value is not dropped in time: twice [`LONG`].
pub struct Limit(Arc<AtomicBool>);

impl Limit {
    /// Begins the time. `what` is for the message.
    pub fn new(what: String) -> Limit {
        let test = std::thread::current().name().unwrap_or("?").to_owned();
        eprintln!("{test}: {what}");
        let over = Arc::new(AtomicBool::new(false));
        let is_over = over.clone();
        std::thread::spawn(move || {
            let end = Instant::now() + 2 * LONG;
            while !is_over.load(Ordering::Relaxed) {
                if Instant::now() > end {
                    // Not by a panic: no thread joins this one, and the hung thread never ends.
                    let hangs = format!("\n{test}: {what}: hangs\n");
                    let _ = rustix::io::write(rustix::stdio::stderr(), hangs.as_bytes());
                    std::process::abort();
                }
                std::thread::sleep(20 * PAUSE);
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
