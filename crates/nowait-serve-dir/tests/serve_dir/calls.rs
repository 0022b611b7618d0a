//! The system calls of responses of cached files, counted by strace(1). The thread that polls makes all of them.

use std::path::Path;
use std::process::Command;

use http::Method;
use slowdisk::{Filesystem, TestMount};
use test_support::calls;

use crate::site::{Site, ask, request};

const SITE: &str = "NOWAIT_SERVE_DIR_CALLS";

/// The number of times that each request is made.
const TIMES: usize = 50;

/// A method, a path, headers, and the most system calls.
type Row = (Method, &'static str, Headers, usize);

type Headers = &'static [(&'static str, &'static str)];

/// The requests. ServeDir first asks if the path is a directory: O_PATH, statx, statx, close.
const ROWS: [Row; 4] = [
    // GET: O_PATH, statx, open, statx, close, read, close.
    (Method::GET, "/text.txt", &[], 11),
    // GET of a range: the calls of GET, and lseek.
    (Method::GET, "/text.txt", &[("range", "bytes=1-3")], 12),
    // GET of an unchanged file: the calls of GET without the read.
    (Method::GET, "/text.txt", &[("if-none-match", "*")], 10),
    // HEAD asks for the metadata a second time.
    (Method::HEAD, "/text.txt", &[], 8),
];

/// Makes each request many times, with a mark in the log before it and after it.
fn make_all(root: &Path) {
    let service = nowait_serve_dir::serve_dir(root);
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    for (method, path, headers, _) in &ROWS {
        let get = || ask(&service, request(method.clone(), path, headers));
        // The first one makes the filesystem known.
        for _ in 0..2 {
            runtime.block_on(get());
        }
        for _ in 0..TIMES {
            let answer = runtime.block_on(async {
                calls::mark();
                let answer = get().await;
                calls::mark();
                answer
            });
            assert!(answer.status.as_u16() < 400, "{path}: {}", answer.status);
        }
    }
}

#[test]
fn a_cached_file_takes_eleven_calls() {
    if let Some(root) = std::env::var_os(SITE) {
        return make_all(root.as_ref());
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return slowdisk::skip_or_fail("strace is missing (Debian package strace)");
    }
    slowdisk::require!(Filesystem::Ext4.available());
    let mount = TestMount::new(Filesystem::Ext4).unwrap();
    let site = Site::within(mount.path());
    let most = ROWS.map(|(_, path, _, most)| (path, most));
    calls::at_most_in_this_test(&most, TIMES, (SITE, &site.root()));
}
