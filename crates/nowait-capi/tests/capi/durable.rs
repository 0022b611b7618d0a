//! A sync and a write with RWF_DSYNC or RWF_SYNC, on filesystems that end without a flush of their log, as in a power cut.

use std::path::Path;

use slowdisk::{Filesystem, Log, TestMount};

use crate::installed::{Linking, Program, run_to_end};

#[test]
fn synced_bytes_are_there_after_a_power_cut() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/durable.c");
    let program = Program::compile(
        &["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra"],
        &source,
        Linking::Shared,
    );
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (1 + i % 251) as u8).collect();
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        slowdisk::require!(filesystem.available());
        let mount = TestMount::new(filesystem).unwrap();
        for backend in ["uring", "threads"] {
            let directory = mount.path().join(backend);
            std::fs::create_dir(&directory).unwrap();
            mount.sync().unwrap();
            let mut command = program.command();
            command
                .current_dir(&directory)
                .env("NOWAIT_BACKEND", backend);
            run_to_end(&mut command).unwrap();
            mount.shut_down(Log::Lost).unwrap();
            mount.remount().unwrap();
            let files = std::fs::read_dir(directory).unwrap();
            let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
            assert_eq!(files.len(), 11);
            for file in files {
                let read = std::fs::read(&file).unwrap();
                assert!(read == bytes, "{filesystem}, {backend}: {}", file.display());
            }
        }
    }
}
