//! A directory that is listed in parts while names come and go: every name that stays comes exactly
//! once.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, u64, &[u8], &[u8])| {
    let (kind, parts, size, names, choices) = input;
    nowait::internals::exactly_once(kind, parts, size, names, choices);
});
