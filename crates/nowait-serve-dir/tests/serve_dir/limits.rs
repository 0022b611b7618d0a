//! Limits of the process, permissions, and a disk that does not answer.

use std::process::Command;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use http::{Method, StatusCode};
use nowait_serve_dir::NowaitBackend;
use rustix::process::{Resource, Rlimit, Uid, getrlimit, setrlimit};
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount, extents};
use tower_http::services::fs::{Backend, TokioBackend};

use crate::site::{Site, ask, get, large, request};
use test_support::limit::LONG;

/// Runs a test in a process of its own. Returns true in that process.
fn is_alone(test: &str) -> bool {
    const CHILD: &str = "NOWAIT_SERVE_DIR_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test}:\n{text}{errors}");
    assert!(text.contains("1 passed"), "no test {test}:\n{text}");
    false
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    tokio::task::LocalSet::new().block_on(&runtime.unwrap(), future)
}

#[test]
fn an_unreadable_file_is_not_found() {
    if !is_alone("limits::an_unreadable_file_is_not_found") {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new();
    let private = std::fs::Permissions::from_mode(0o000);
    for name in ["text.txt", "sub"] {
        std::fs::set_permissions(site.path(name), private.clone()).unwrap();
    }
    // The path above it may be closed to other users.
    rustix::process::chdir(site.root()).unwrap();
    if rustix::process::getuid().is_root() {
        // Threads that are started from here on have this user, too.
        rustix::thread::set_thread_uid(Uid::from_raw(65534)).unwrap();
    }
    async fn check<B: Backend>(backend: B) {
        let service = tower_http::services::ServeDir::with_backend(".", backend);
        for path in ["/text.txt", "/sub/index.html", "/sub/none"] {
            for method in [Method::GET, Method::HEAD] {
                let answer = ask(&service, request(method.clone(), path, &[])).await;
                // The metadata of an unreadable file may be read.
                let status = match (method, path) {
                    (Method::HEAD, "/text.txt") => StatusCode::OK,
                    _ => StatusCode::NOT_FOUND,
                };
                assert_eq!(
                    (answer.status, &answer.body[..]),
                    (status, &b""[..]),
                    "{path}"
                );
            }
        }
        let answer = get(&service, "/page.html", &[]).await;
        assert_eq!(answer.text(), (200, "<p>page"));
    }
    block_on(async {
        check(TokioBackend).await;
        check(NowaitBackend::new()).await;
    });
}

#[test]
fn a_process_without_descriptors_says_so_and_recovers() {
    if !is_alone("limits::a_process_without_descriptors_says_so_and_recovers") {
        return;
    }
    let site = Site::new();
    async fn check<B: Backend>(site: &Site, backend: B) {
        let mut service = site.serve(backend);
        // The engine and the pool of threads are there.
        assert_eq!(get(&service, "/text.txt", &[]).await.text(), (200, "plain"));
        let mut all = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            all.push(file);
        }
        for _ in 0..3 {
            assert_eq!(get(&service, "/text.txt", &[]).await.text(), (500, ""));
            let asked = service
                .try_call(request(Method::GET, "/text.txt", &[]))
                .await;
            let error = asked.map(drop).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(24), "EMFILE: {error}");
        }
        // No descriptor is needed for metadata.
        let head = ask(&service, request(Method::HEAD, "/text.txt", &[])).await;
        assert_eq!(head.status, StatusCode::OK);
        drop(all);
        assert_eq!(get(&service, "/text.txt", &[]).await.text(), (200, "plain"));
    }
    let most = Rlimit {
        current: Some(64),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, most).unwrap();
    block_on(async {
        check(&site, TokioBackend).await;
        check(&site, NowaitBackend::new()).await;
    });
}

#[test]
fn many_files_need_no_more_descriptors_than_responses_in_flight() {
    if !is_alone("limits::many_files_need_no_more_descriptors_than_responses_in_flight") {
        return;
    }
    let site = Site::new();
    for i in 0..10_000 {
        std::fs::write(site.path(&format!("{i}.txt")), i.to_string()).unwrap();
    }
    let most = Rlimit {
        current: Some(256),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, most).unwrap();
    let service = site.serve(NowaitBackend::new());
    block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for first in 0..100 {
            let service = service.clone();
            tasks.spawn_local(async move {
                for i in (first..10_000).step_by(100) {
                    let answer = get(&service, &format!("/{i}.txt"), &[]).await;
                    assert_eq!(answer.text(), (200, &*i.to_string()));
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    });
}

#[test]
fn a_stalled_disk_delays_only_the_files_on_it() {
    slowdisk::require!(slowdisk::available());
    slowdisk::require!(Filesystem::Ext4.available());
    async fn check<B: Backend>(backend: B) {
        let disk = Arc::new(SlowDisk::builder().size(64 << 20).build().unwrap());
        let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
        let site = Site::new();
        std::os::unix::fs::symlink(mount.path(), site.path("slow")).unwrap();
        site.write("slow/large", &large());
        site.write("slow/hot.txt", b"cached");
        mount.sync().unwrap();
        site.evict("slow/large");
        let file = std::fs::File::open(site.path("slow/large")).unwrap();
        let ranges = extents(&file).unwrap().into_iter();
        let faults: Vec<_> = ranges
            .map(|range| disk.inject(Fault::stall(range).reads_only()))
            .collect();
        // If the task waits for the disk, the test fails, and does not hang.
        let (done, waiting) = mpsc::channel::<()>();
        let released = disk.clone();
        let watch = std::thread::spawn(move || {
            if waiting.recv_timeout(LONG) == Err(RecvTimeoutError::Timeout) {
                released.release_all();
            }
        });
        let service = site.serve(backend);
        let cold: Vec<_> = (0..8)
            .map(|_| {
                let service = service.clone();
                tokio::task::spawn_local(async move { get(&service, "/slow/large", &[]).await })
            })
            .collect();
        while disk.stalled() == 0 && !cold.iter().any(|task| task.is_finished()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The only thread of the runtime continues, and cached files of the same disk are served.
        for _ in 0..100 {
            assert_eq!(get(&service, "/text.txt", &[]).await.text(), (200, "plain"));
            assert_eq!(
                get(&service, "/slow/hot.txt", &[]).await.text(),
                (200, "cached")
            );
        }
        assert!(disk.stalled() > 0, "the task has waited");
        drop(done);
        watch.join().unwrap();
        assert!(cold.iter().all(|task| !task.is_finished()));
        faults.into_iter().for_each(|fault| disk.release(fault));
        for task in cold {
            assert!(task.await.unwrap().body == large());
        }
        drop(file);
    }
    block_on(async {
        check(TokioBackend).await;
        check(NowaitBackend::new()).await;
    });
}
