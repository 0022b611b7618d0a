//! aio_fsync(3) and files that are open with O_SYNC or O_DSYNC, on filesystems that end without a flush of their log, as
//! in a power cut.

use std::process::Command;

use slowdisk::{Filesystem, Log, TestMount};

use crate::common::{OURS, Program, run};

#[test]
fn synced_bytes_are_there_after_a_power_cut() {
    let program = Program::compile("durable.c");
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (1 + i % 251) as u8).collect();
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        slowdisk::require!(filesystem.available());
        let mount = TestMount::new(filesystem).unwrap();
        for under in OURS {
            let directory = mount.path().join(format!("{under:?}"));
            std::fs::create_dir(&directory).unwrap();
            mount.sync().unwrap();
            let mut command = Command::new(&program.path);
            command.arg("durable").current_dir(&directory);
            under.prepare(&mut command);
            run(&mut command).unwrap();
            mount.shut_down(Log::Lost).unwrap();
            mount.remount().unwrap();
            let files = std::fs::read_dir(directory).unwrap();
            let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
            assert_eq!(files.len(), 6);
            for file in files {
                let read = std::fs::read(&file).unwrap();
                assert!(read == bytes, "{filesystem}, {under:?}: {}", file.display());
            }
        }
    }
}
