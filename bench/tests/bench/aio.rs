//! `nowait-bench aio`.

use std::fs;

use crate::common::{assert_says, assert_shape, bench, directory, is_missing, run};

#[test]
fn runs_its_jobs_with_and_without_the_drop_in() {
    if is_missing(&["fio"]) {
        return;
    }
    let dir = directory();
    let stats = dir.path().join("stats");
    let args = "aio --size 32M --seconds 0.05 --rounds 3 --json --rows random-warm-1,mixed-paced,seed-cold";
    let said = run(bench(dir.path(), args).env("NOWAIT_AIO_STATS", &stats)).done();
    let cells = "random-warm-1: glibc nowait io_uring
                 mixed-paced cold: glibc nowait io_uring
                 mixed-paced hot: glibc nowait io_uring
                 seed-cold f1: glibc nowait io_uring
                 seed-cold f2: glibc nowait io_uring
                 seed-cold f3: glibc nowait io_uring";
    assert_shape(&said.json(), "aio", 3, cells);
    assert!(said.json()["cells"][3]["ratios"]["nowait/glibc"]["lat_us/p99"]["median"].is_f64());
    // The drop-in was preloaded for its contender alone: it writes one line for each run.
    assert_eq!(fs::read_to_string(stats).unwrap().lines().count(), 3 * 3);

    let args =
        "aio --size 32M --seconds 0.05 --rounds 1 --rows random-cold-32,mixed,sequential,seed-warm";
    let said = run(&mut bench(dir.path(), args)).done();
    let words = [
        "random-cold-32",
        "mixed cold",
        "sequential",
        "seed-warm f1, KB/s",
        "bw min",
        "seed-warm f1, % in",
    ];
    assert_says(&said, &words);
}
