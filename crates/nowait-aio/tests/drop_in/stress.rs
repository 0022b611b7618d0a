//! Eight threads with signals, cancellations and forks, where every byte is compared. Lost wake-ups.

use crate::common::{OURS, Program};

fn runs(case: &str, seconds: &str) {
    let program = Program::compile("stress.c");
    for under in OURS {
        program
            .run(case, under, &[("SECONDS_OF_STRESS", seconds)])
            .unwrap_or_else(|why| panic!("{under:?}: {why}"));
    }
}

#[test]
fn eight_threads_signals_cancels_and_forks() {
    runs("all_at_once", "8");
}

#[test]
fn no_wake_up_is_lost() {
    runs("no_wake_up_is_lost", "5");
}
