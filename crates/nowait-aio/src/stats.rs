//! Counters, and the line about them that a process leaves behind.

use std::ffi::c_int;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::home::Home;
use crate::request::Kind;
use crate::sys::{process, signal};

/// What is counted of one kind of request.
#[derive(Debug)]
pub struct OfKind {
    /// Done within the call: the page cache had it.
    pub hits: AtomicU64,
    /// Looked for in the page cache, and not found there.
    pub misses: AtomicU64,
    /// Given to the engine.
    pub handoffs: AtomicU64,
}

/// The counters of this process. They live in [`Home`]: all zeroes is none counted.
#[derive(Debug)]
pub struct Counters {
    read: OfKind,
    write: OfKind,
    fsync: OfKind,
    /// The line is left.
    left: AtomicBool,
}

impl Counters {
    /// Those of one kind of request.
    pub fn of(&self, kind: Kind) -> &OfKind {
        match kind {
            Kind::Read => &self.read,
            Kind::Write => &self.write,
            Kind::Sync | Kind::DataSync => &self.fsync,
        }
    }

    /// One line of JSON; `None` if nothing was counted.
    fn line(&self) -> Option<String> {
        let all = [
            ("read", &self.read),
            ("write", &self.write),
            ("fsync", &self.fsync),
        ];
        let mut any = false;
        let mut line = format!("{{\"pid\":{}", std::process::id());
        for (name, of) in all {
            let counts = [&of.hits, &of.misses, &of.handoffs].map(|c| c.load(Relaxed));
            any |= counts.iter().any(|n| *n > 0);
            let [hits, misses, handoffs] = counts;
            line += &format!(
                ",\"{name}\":{{\"hits\":{hits},\"misses\":{misses},\"handoffs\":{handoffs}}}"
            );
        }
        line += "}\n";
        any.then_some(line)
    }
}

/// One more.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// Appends the line to the file that NOWAIT_AIO_STATS names, if this process has used AIO. Runs when
/// it exits, once. Several processes may share a file: each line is one write.
extern "C" fn leave_line() {
    // A child of vfork(2) has its parent's counters.
    let Some(home) = Home::known().filter(|home| home.is_of_this_process()) else {
        return;
    };
    if home.counters.left.swap(true, Relaxed) {
        return;
    }
    // A handler that waits for the keeper must not interrupt who has the heap.
    signal::with_all_blocked(|| {
        let wanted = std::env::var_os("NOWAIT_AIO_STATS").filter(|name| !name.is_empty());
        let (Some(name), Some(line)) = (wanted, home.counters.line()) else {
            return;
        };
        // A privileged program writes to no file that its caller names.
        // SAFETY: getauxval has no preconditions.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return;
        }
        // There is nobody to tell if it can't be written.
        let file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(name);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    });
}

#[used]
// SAFETY: the dynamic linker calls what it finds in this section when the library is unloaded or the
// process exits, with no arguments that this function takes.
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = leave_line;

/// Ends the process: _exit(2), by which many programs end their children. No other function runs then
/// that could leave the line.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    leave_line();
    process::exit_group(status)
}

/// The same: _Exit(3).
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}
