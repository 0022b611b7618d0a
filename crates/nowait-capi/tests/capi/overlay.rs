//! Residency on overlayfs: the answers are about the file that is read.

use std::path::Path;

use slowdisk::{Filesystem, TestMount};

use crate::installed::{Linking, Program, run_to_end};

#[test]
fn a_file_that_is_copied_up_is_not_asked_for_in_its_lower_layer() {
    slowdisk::require!(Filesystem::Overlay.available());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/overlay.c");
    let program = Program::compile(
        &["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra"],
        &source,
        Linking::Shared,
    );
    let base = TestMount::new(Filesystem::Ext4).unwrap();
    let lower = base.path().join("lower");
    std::fs::create_dir(&lower).unwrap();
    std::fs::write(lower.join("file"), vec![7; 1 << 20]).unwrap();
    let overlay = TestMount::overlay(base).unwrap();
    let mut command = program.command();
    command
        .arg(overlay.path().join("file"))
        .arg(overlay.lower().unwrap().join("file"));
    run_to_end(&mut command).unwrap();
}
