//! The library under valgrind, which finds errors with memory. Programs with the library can be debugged by
//! it.

use std::process::Command;

use crate::common::{OURS, Program, Under, run};

/// Programs with some of their cases: each kind of request, notification and wait.
const CASES: [(&str, &[&str]); 7] = [
    (
        "status.c",
        &[
            "a_write_and_a_read_transfer_the_bytes",
            "a_block_of_uninitialised_memory_works",
            "a_copy_has_the_status_of_its_original",
        ],
    ),
    (
        "cancel.c",
        &["one_request", "a_write_that_waits_is_not_cancelled"],
    ),
    (
        "order.c",
        &["pipes_keep_their_order", "terminals_keep_their_order"],
    ),
    (
        "kinds.c",
        &[
            "an_eventfd",
            "an_inotify",
            "an_epoll",
            "an_empty_datagram_is_sent",
        ],
    ),
    (
        "notify.c",
        &["the_right_signal_comes", "a_list_notifies_by_a_thread"],
    ),
    ("suspend.c", &["it_works_in_a_handler", "it_times_out"]),
    ("fork.c", &["a_child_of_a_parent_that_used_it"]),
];

#[test]
fn valgrind_finds_nothing() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        let missing = "valgrind is not installed: apt-get install valgrind";
        assert!(std::env::var_os("NOWAIT_TEST_ALL").is_none(), "{missing}");
        eprintln!("skipped: {missing}");
        return;
    }
    let mut wrong = Vec::new();
    for (source, cases) in CASES {
        let program = Program::compile(source);
        for case in cases {
            assert!(
                program.cases().iter().any(|c| c == case),
                "no case `{case}`"
            );
            // valgrind expects a ring's mappings in a forked child, which does not have them.
            let forks = source == "fork.c";
            for under in OURS
                .into_iter()
                .filter(|under| !forks || *under == Under::Threads)
            {
                let mut valgrind = Command::new("valgrind");
                valgrind.args(["--quiet", "--error-exitcode=9", "--fair-sched=yes"]);
                valgrind.arg(&program.path).arg(case);
                valgrind.current_dir(program.directory());
                under.prepare(&mut valgrind);
                if let Err(why) = run(&mut valgrind) {
                    wrong.push(format!("{source} {case} under {under:?}: {why}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
