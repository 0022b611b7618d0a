//! `nowait-bench object-store`.

use std::fs;

use slowdisk::{Filesystem, require};

use crate::common::{assert_nothing_is_left, assert_shape, directory, report};

const SMALL: &str = "object-store --size 8M --objects 1500 --seconds 0.3";

#[test]
fn the_results_have_the_shape_of_every_area() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let dir = directory();
    let all = report(dir.path(), &format!("{SMALL} --rounds 3 --slow-disk 1ms"));
    let cells = "warm-4K-1: nowait nowait-mapped local
                 warm-4K-32: nowait nowait-mapped local
                 cold-64K-32: nowait nowait-mapped local
                 ranges-8K-100: nowait nowait-mapped local
                 tiles-20K-1000: nowait nowait-mapped local
                 cold-tiles-20K-1000: nowait nowait-mapped local
                 list: nowait nowait-mapped local";
    assert_shape(&all, "object-store", 3, cells);
    assert_nothing_is_left(dir.path());
}

#[test]
fn an_object_of_the_user_is_read_and_kept() {
    let dir = directory();
    let path = dir.path().join("object");
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let args = "--file object --works warm-4K-1,ranges-8K-100 --rounds 1 --contenders nowait";
    let all = report(dir.path(), &format!("{SMALL} {args}"));
    assert_eq!(all["settings"]["size"], 1 << 20);
    assert_eq!(fs::read(&path).unwrap(), vec![7; 1 << 20]);
}
