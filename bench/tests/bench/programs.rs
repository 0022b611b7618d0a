//! `nowait-bench programs`: its cells, what the programs read, and the removal of what it makes. The preload library,
//! which is built with the program's workspace, is not needed.

use crate::common::{
    assert_nothing_is_left, assert_shape, bench, cells_of, directory, report, rounds_of, row, run,
};

#[test]
fn programs_read_their_cold_files_from_a_slow_disk() {
    slowdisk::require!(slowdisk::available());
    let here = directory();
    let args = "programs --slow-disk 100us --queue 8 --programs cat,cats,perl --rounds 2 \
                --contenders direct";
    let report = report(here.path(), args);
    assert_nothing_is_left(here.path());
    assert_shape(
        &report,
        "programs",
        2,
        "cat: direct\ncats: direct\nperl: direct\n",
    );
    let reads = |program: &str| {
        let cells = cells_of(&report);
        let cell = cells
            .iter()
            .find(|cell| cell["name"] == program)
            .expect("a cell");
        assert_eq!(cell["parameters"]["program"], program);
        let row = row(cell, "direct");
        for turn in rounds_of(row) {
            assert!(turn["seconds"].as_f64() > Some(0.0), "{turn}");
        }
        row["median"]["reads"].as_f64().expect("a number")
    };
    // 40 files are read in more requests than one.
    assert!(reads("cat") > 0.0 && reads("cats") > reads("cat") && reads("perl") > 0.0);
}

#[test]
fn a_learnt_program_needs_the_preload_library() {
    let here = directory();
    let args = "programs --slow-disk 100us --programs cat --contenders learn --libraries /";
    let said = run(&mut bench(here.path(), args));
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("--libraries"), "{said:?}");
}
