//! Runs when ld.so(8) has loaded the library, before main() and before threads, and when the
//! process ends.

use crate::{calls, residency, statx, watch};

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    calls::find();
    statx::find();
    residency::find();
    watch::attach();
}

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn end() {
    watch::end();
}
