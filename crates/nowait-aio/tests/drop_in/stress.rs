//! Eight threads, signals, cancels and forks at once; every byte is compared.

use crate::common::{OURS, Program};

#[test]
fn eight_threads_signals_cancels_and_forks() {
    let program = Program::compile("stress.c");
    for under in OURS {
        program
            .run("all_at_once", under, &[("SECONDS_OF_STRESS", "8")])
            .unwrap_or_else(|why| panic!("{under:?}: {why}"));
    }
}
