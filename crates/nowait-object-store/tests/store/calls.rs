//! The system calls of reads of a small cached object that is open already, counted by strace(1). The thread that polls makes
//! all of them.

use std::path::Path as FilePath;
use std::process::Command;

use slowdisk::{Filesystem, TestMount};
use test_support::calls;

use super::NowaitFileSystem;
use super::object_store::path::Path;
use super::object_store::{ObjectStore, ObjectStoreExt};
use crate::common::{pattern, patterned};

const ROOT: &str = "NOWAIT_OBJECT_STORE_CALLS";

/// The number of times that each call is made.
const TIMES: usize = 50;

const LEN: usize = 3000;

/// The calls, and their most system calls. The file is compared with its path: O_PATH, statx, faccessat, close.
const ROWS: [(&str, usize); 3] = [
    ("head", 4),
    // The comparison, and one read.
    ("get", 5),
    ("get_ranges", 5),
];

async fn call(store: &NowaitFileSystem, name: &str) {
    let object = Path::from("object");
    match name {
        "head" => assert_eq!(store.head(&object).await.unwrap().size, LEN as u64),
        "get" => {
            let got = store.get(&object).await.unwrap();
            assert_eq!(got.bytes().await.unwrap(), pattern(LEN));
        }
        _ => {
            let got = store.get_ranges(&object, &[0..9, 2000..2999]).await;
            assert_eq!(got.unwrap()[0], pattern(9));
        }
    }
}

fn make_all(root: &FilePath) {
    let store = NowaitFileSystem::new_with_prefix(root).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    for (name, _) in ROWS {
        for _ in 0..2 {
            runtime.block_on(call(&store, name));
        }
        for _ in 0..TIMES {
            runtime.block_on(async {
                calls::mark();
                call(&store, name).await;
                calls::mark();
            });
        }
    }
}

#[test]
fn reads_of_an_open_object_take_five_calls() {
    if let Some(root) = std::env::var_os(ROOT) {
        return make_all(root.as_ref());
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return slowdisk::skip_or_fail("strace is missing (Debian package strace)");
    }
    slowdisk::require!(Filesystem::Ext4.available());
    let mount = TestMount::new(Filesystem::Ext4).unwrap();
    patterned(mount.path(), "object", LEN);
    calls::at_most_in_this_test(&ROWS, TIMES, (ROOT, mount.path()));
}
