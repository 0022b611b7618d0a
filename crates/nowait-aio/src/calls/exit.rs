//! The end of the process: _exit(2), _Exit(3), and the line of statistics that is written then.

use std::ffi::c_int;
use std::io::Write;

use crate::process_state::ProcessState;
use crate::sys::{process, signal};

/// Appends the line of statistics to the file that NOWAIT_AIO_STATS names, once, if this process
/// has used AIO. Several processes may share a file: each line is one write(2).
extern "C" fn write_statistics() {
    // A child of vfork(2) has its parent's counters.
    let Some(process) = ProcessState::get().filter(|process| process.is_of_this_process()) else {
        return;
    };
    if !process.counters.take_line() {
        return;
    }
    // A handler that waits for the driver must not interrupt a thread that has the heap's lock.
    signal::with_all_blocked(|| {
        let name = std::env::var_os("NOWAIT_AIO_STATS").filter(|name| !name.is_empty());
        let (Some(name), Some(line)) = (name, process.counters.line()) else {
            return;
        };
        // A privileged program must not write to a file that its caller names.
        // SAFETY: getauxval has no preconditions.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return;
        }
        let file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(name);
        // An error is not reported: the process exits.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    });
}

#[used]
// SAFETY: the dynamic linker calls the functions in this section when the process exits. It passes
// no arguments that this function takes.
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = write_statistics;

/// Ends the process: _exit(2). Many programs end their children by it. Functions of `.fini_array`
/// do not run then, so the statistics are written here.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    write_statistics();
    process::exit_group(status)
}

/// Ends the process: _Exit(3), the same as _exit(2).
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}
