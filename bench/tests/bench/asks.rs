//! `nowait-bench asks`.

use crate::common::{assert_shape, directory, report};

#[test]
fn the_results_have_the_shape_of_every_area() {
    let dir = directory();
    let all = report(dir.path(), "asks --seconds 0.02 --rounds 3");
    assert_shape(
        &all,
        "asks",
        3,
        "64 ranges of 256K of one file: nowait mincore mincore-once
         2,000 files of 4K: nowait mincore
         500 files of 256K: nowait mincore",
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
