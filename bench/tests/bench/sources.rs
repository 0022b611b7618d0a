//! `nowait-bench sources`.

use std::fs;

use slowdisk::{Filesystem, require};

use crate::common::{assert_nothing_is_left, assert_shape, directory, report};

#[test]
fn the_results_have_the_shape_of_every_area() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let dir = directory();
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("src")).unwrap();
    for i in 0..300 {
        fs::write(tree.path().join(format!("src/{i}.c")), vec![7; 100 * i]).unwrap();
    }
    let tree = tree.path().display();
    let all = report(
        dir.path(),
        &format!("sources {tree} --files 200 --rounds 3 --slow-disk 1ms"),
    );
    assert_shape(
        &all,
        "sources",
        3,
        "cached: read-files tokio rayon
         cold: read-files tokio rayon",
    );
    assert_nothing_is_left(dir.path());
}
