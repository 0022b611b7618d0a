//! nowait's backend serves cached files at the first poll.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use http::{Method, StatusCode};
use nowait_serve_dir::NowaitBackend;
use rustix::event::{PollFd, PollFlags};
use slowdisk::{Filesystem, TestMount};
use test_support::repeat::{Excuse, Watch};

use crate::site::{Answer, Site, ask, get, request};

/// Polls a response and its body once.
async fn once(answer: impl Future<Output = Answer>) -> Poll<Answer> {
    let mut answer = std::pin::pin!(answer);
    poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await
}

/// Returns true if statx(2) tells the ID of a mount that is not used again (Linux 6.8).
fn mounts_have_unique_ids() -> bool {
    let unique = nowait::StatxMask::from_bits_retain(0x4000);
    let root = nowait::Metadata::statx(rustix::fs::CWD, "/", 0, unique).unwrap();
    root.has(unique)
}

/// The mounts of this namespace: poll(2) of /proc/self/mountinfo tells that they have changed.
struct Mounts(std::fs::File);

impl Mounts {
    fn new() -> Mounts {
        Mounts(std::fs::File::open("/proc/self/mountinfo").unwrap())
    }

    /// Takes the mounts as they are.
    fn look(&mut self) {
        while self.have_changed() {}
    }

    /// Returns true if they have changed since the last call.
    fn have_changed(&mut self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::PRI)];
        let now = rustix::event::Timespec::default();
        rustix::event::poll(&mut fds, Some(&now)).unwrap() == 1
    }
}

/// Returns true if the kernel refuses to resolve a cached path without waiting: openat2(2), RESOLVE_CACHED.
fn refuses(path: &std::path::Path) -> bool {
    let open = || {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let cached = rustix::fs::ResolveFlags::CACHED;
        rustix::fs::openat2(rustix::fs::CWD, path, flags, 0.into(), cached)
    };
    (0..1000).any(|_| open().is_err())
}

#[tokio::test]
async fn metadata_on_overlayfs_is_answered_at_the_first_poll() {
    slowdisk::require!(Filesystem::Overlay.available());
    let base = TestMount::new(Filesystem::Ext4).unwrap();
    let mount = TestMount::overlay(base).unwrap();
    let site = Site::within(mount.path());
    let service = site.serve(NowaitBackend::new());
    // The mount is known after a file was opened.
    assert_eq!(get(&service, "/text.txt", &[]).await.text(), (200, "plain"));
    let head = || request(Method::HEAD, "/page.html", &[]);
    let want = ask(&service, head()).await;
    assert_eq!(want.status, StatusCode::OK);
    if !mounts_have_unique_ids() {
        assert!(once(ask(&service, head())).await.is_pending());
        return;
    }
    // The kernel refuses to resolve a path without waiting while another test mounts or unmounts.
    let mut mounts = Mounts::new();
    loop {
        mounts.look();
        match once(ask(&service, head())).await {
            Poll::Ready(got) => break assert_eq!(got, want),
            Poll::Pending => {
                let is_refused = mounts.have_changed() || refuses(&site.path("page.html"));
                assert!(
                    is_refused,
                    "the answer is not ready, and no mount has changed"
                );
            }
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn cached_files_and_missing_ones_are_answered_at_the_first_poll() {
    slowdisk::require!(Filesystem::Ext4.available());
    let mount = TestMount::new(Filesystem::Ext4).unwrap();
    let site = Site::within(mount.path());
    let service = site.serve(NowaitBackend::new()).precompressed_gzip();
    // The first file of a filesystem is opened by a worker.
    assert_eq!(get(&service, "/text.txt", &[]).await.text(), (200, "plain"));
    let gzip = [("accept-encoding", "gzip")];
    let part = [("range", "bytes=4000000-4099999")];
    for (path, headers, status) in [
        ("/text.txt", &[][..], 200),
        ("/text.txt", &gzip, 200),
        // Its gzip file is missing.
        ("/page.html", &gzip, 200),
        ("/large", &part, 206),
        ("/sub/", &[], 200),
        ("/sub", &[], 307),
        ("/none.txt", &gzip, 404),
        ("/text.txt", &[("if-none-match", "*")], 304),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let request = || request(method.clone(), path, headers);
            let mut watch = Watch::new();
            let want = ask(&service, request()).await;
            assert_eq!(want.status, StatusCode::from_u16(status).unwrap(), "{path}");
            let got = loop {
                // The task has its whole budget again.
                tokio::task::yield_now().await;
                if let Poll::Ready(got) = once(ask(&service, request())).await {
                    break got;
                }
                let excuses = [Excuse::AnyPreempted, Excuse::AnyReclaimed];
                let proof = watch.proof(&excuses);
                assert!(proof.is_some(), "{method} {path} {headers:?}: not ready");
                // A try that was preempted looks like one that waited for the device: no other is made for a second.
                tokio::time::sleep(Duration::from_millis(1_100)).await;
                watch = Watch::new();
                ask(&service, request()).await;
            };
            assert_eq!(got, want);
        }
    }
    site.evict("large");
    let cold = once(get(&service, "/large", &[])).await;
    assert!(cold.is_pending(), "the whole file is not read in one poll");
}
