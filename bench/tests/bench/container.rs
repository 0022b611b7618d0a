//! `nowait-bench container`: the environment of the verb within, and the removal of that environment.

use crate::common::{assert_nothing_is_left, bench, directory, run};

#[test]
fn a_verb_runs_on_an_overlayfs_without_io_uring() {
    slowdisk::require!(slowdisk::available());
    let here = directory();
    // compio needs the ring.
    let line = "container --upper . -- runtimes --file data --size 4M --cells cached-4K-1 --peers nowait,compio --rounds 1 \
        --seconds 0.01";
    let said = run(&mut bench(here.path(), line));
    // A note says if no control group can be made.
    assert_eq!(said.code, Some(0), "{said:?}");
    let text = &said.out;
    assert!(text.contains("overlayfs"), "{text}");
    let begins = |word: &str| text.lines().any(|line| line.starts_with(word));
    assert!(begins("nowait ") && !begins("compio "), "{text}");
    assert_nothing_is_left(here.path());
}
