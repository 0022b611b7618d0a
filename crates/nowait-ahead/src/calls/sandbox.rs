//! Filters of system calls (seccomp(2)). Surveys and learning make system calls, for which a filter may end
//! the program.

use std::ffi::{c_int, c_ulong};

use crate::next::interpose;
use crate::survey_events;
use crate::system_calls;

interpose! {
    // prctl(2) takes up to five arguments, as the variadic function finds them.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int, else -1,
        call => { controls(option); call() };
}

/// The program calls prctl(2).
pub fn controls(option: c_int) {
    if option == libc::PR_SET_SECCOMP {
        filters();
    }
}

/// The program is about to install a filter.
pub fn filters() {
    if system_calls::are_allowed() {
        survey_events::is_filtered();
    }
    system_calls::stop();
}
