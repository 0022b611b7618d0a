//! The nginx module of examples/nginx, in the nginx of Debian.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::disk::{Disk, evict, needs_disk};
use crate::installed::{Installed, root, run, scratch};
use test_support::limit::LONG;

/// The module, built against the installed library.
fn module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nowait-nginx");
        let mut build = Command::new(root().join("examples/nginx/build.sh"));
        build.arg(&out);
        build.env("PKG_CONFIG_PATH", Installed::tree().lib().join("pkgconfig"));
        run(&mut build);
        out.join("ngx_http_nowait_module.so")
    })
}

/// Skips the test if a program is missing.
macro_rules! needs_nginx {
    () => {
        let missing = ["nginx", "curl", "openssl"].into_iter().find(|program| {
            let found = Command::new(program).arg("--version").output();
            found.is_err()
        });
        let has_sources = Path::new("/usr/share/nginx/src/configure").exists();
        let missing = match missing {
            Some(program) => Err(format!("{program}: scripts/install-deps.sh --servers")),
            None if !has_sources => Err("nginx-dev: scripts/install-deps.sh --servers".into()),
            None => Ok(()),
        };
        slowdisk::require!(missing);
    };
}

/// A running nginx with the module, which ends with this value.
struct Nginx {
    master: Child,
    directory: tempfile::TempDir,
    port: u16,
    tls: u16,
}

impl Nginx {
    /// Serves a directory. `more` is added to the configuration of the servers.
    fn start(files: &Path, more: &str) -> Nginx {
        let directory = scratch();
        let here = directory.path();
        let (port, tls) = (free_port(), free_port());
        run(Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ])
            .args(["-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout"])
            .arg(here.join("key.pem"))
            .arg("-out")
            .arg(here.join("cert.pem")));
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {}/{name};", here.display()))
            .concat();
        let configuration = format!(
            "load_module {module};
            user root; daemon off; worker_processes 1; pid {here}/pid;
            error_log {here}/error.log info;
            events {{ worker_connections 1024; }}
            http {{
                access_log off; {temporary}
                server {{
                    listen 127.0.0.1:{port};
                    listen 127.0.0.1:{tls} ssl http2;
                    ssl_certificate {here}/cert.pem; ssl_certificate_key {here}/key.pem;
                    root {files}; nowait on; {more}
                }}
            }}",
            module = module().display(),
            here = here.display(),
            files = files.display(),
        );
        std::fs::write(here.join("nginx.conf"), configuration).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-e").arg(here.join("error.log"));
        command.arg("-c").arg(here.join("nginx.conf"));
        command.env("LD_LIBRARY_PATH", Installed::tree().lib());
        let master = command.stdin(Stdio::null()).spawn().unwrap();
        let nginx = Nginx {
            master,
            directory,
            port,
            tls,
        };
        let end = Instant::now() + LONG;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "{}", nginx.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        nginx
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("error.log")).unwrap_or_default()
    }

    fn signal(&self, signal: &str) {
        run(Command::new("kill")
            .arg(signal)
            .arg(self.master.id().to_string()));
    }

    /// The processes of the workers.
    fn workers(&self) -> Vec<u32> {
        let master = self.master.id();
        let children = format!("/proc/{master}/task/{master}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        children
            .split_whitespace()
            .map(|id| id.parse().unwrap())
            .collect()
    }

    /// The status and the body that curl(1) gets for a file.
    fn curl(&self, tls: bool, file: &str, args: &[&str]) -> (u32, Vec<u8>) {
        let body = self
            .directory
            .path()
            .join(format!("body-{:?}", std::thread::current().id()));
        let url = if tls {
            format!("https://127.0.0.1:{}/{file}", self.tls)
        } else {
            format!("http://127.0.0.1:{}/{file}", self.port)
        };
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--insecure", "--max-time", "60"]);
        command
            .args(["--write-out", "%{http_code}", "--output"])
            .arg(&body);
        let status = run(command.args(args).arg(url));
        (
            status.parse().unwrap(),
            std::fs::read(&body).unwrap_or_default(),
        )
    }

    /// Sends a request for a file, whose answer is read later.
    fn begin(&self, file: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        write!(
            stream,
            "GET /{file} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        stream
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .arg(self.master.id().to_string())
            .status();
        let end = Instant::now() + LONG;
        while matches!(self.master.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.master.kill();
        let _ = self.master.wait();
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn files_are_served_as_nginx_serves_them() {
    needs_nginx!();
    let files = scratch();
    let sizes = [
        ("empty", 0),
        ("small", 100),
        ("block", 65_536),
        ("large", 3_000_001),
    ];
    for (name, size) in sizes {
        std::fs::write(files.path().join(name), bytes(size)).unwrap();
    }
    let text = "some text that can be compressed\n".repeat(10_000);
    std::fs::write(files.path().join("page.html"), &text).unwrap();
    for more in [
        "",
        "sendfile on;",
        "nowait_buffers 1 4k;",
        "gzip on; gzip_min_length 1;",
    ] {
        let nginx = Nginx::start(files.path(), more);
        for (tls, protocol) in [(false, "--http1.1"), (true, "--http1.1"), (true, "--http2")] {
            let what = format!("{more} {protocol}, TLS {tls}");
            for (name, size) in sizes {
                for cold in [false, true] {
                    if cold {
                        evict(&files.path().join(name));
                    }
                    let (status, body) = nginx.curl(tls, name, &[protocol]);
                    assert!(
                        status == 200 && body == bytes(size),
                        "{what}: {name}: {status}"
                    );
                }
            }
            let large = bytes(3_000_001);
            for (range, start, end) in [
                ("0-0", 0, 1),
                ("70000-2999999", 70_000, 3_000_000),
                ("-5", 2_999_996, 3_000_001),
            ] {
                evict(&files.path().join("large"));
                let (status, body) = nginx.curl(tls, "large", &[protocol, "--range", range]);
                assert!(
                    status == 206 && body == large[start..end],
                    "{what}: {range}: {status}"
                );
            }
            let (status, body) =
                nginx.curl(tls, "large", &[protocol, "--range", "0-9,100000-100009"]);
            let holds = |part: &[u8]| body.windows(10).any(|ten| ten == part);
            assert!(
                status == 206 && holds(&large[..10]) && holds(&large[100_000..100_010]),
                "{what}"
            );
            assert_eq!(
                nginx
                    .curl(tls, "large", &[protocol, "--range", "3000001-"])
                    .0,
                416,
                "{what}"
            );
            assert_eq!(
                nginx.curl(tls, "large", &[protocol, "--head"]).0,
                200,
                "{what}"
            );
            let known = "If-None-Match: *";
            assert_eq!(
                nginx.curl(tls, "large", &[protocol, "--header", known]).0,
                304,
                "{what}"
            );
            assert_eq!(nginx.curl(tls, "missing", &[protocol]).0, 404, "{what}");
            let (status, body) = nginx.curl(tls, "page.html", &[protocol, "--compressed"]);
            assert!(status == 200 && body == text.as_bytes(), "{what}");
        }
        let log = nginx.log();
        for bad in ["[alert]", "[crit]", "[emerg]"] {
            assert!(!log.contains(bad), "{more}: {log}");
        }
    }
}

#[test]
fn a_stalled_disk_delays_neither_others_nor_a_reload() {
    needs_nginx!();
    needs_disk!();
    let disk = Disk::new();
    let cold = disk.cold("cold", &bytes(300_000));
    disk.cold("warm", &bytes(200_000));
    let nginx = Nginx::start(disk.path(), "");
    assert_eq!(nginx.curl(false, "warm", &[]).1, bytes(200_000));
    let faults = disk.stall(&cold);

    let mut waiting: Vec<TcpStream> = (0..10).map(|_| nginx.begin("cold")).collect();
    // A client that goes away while its read is in flight.
    drop(nginx.begin("cold"));
    for tls in [false, true] {
        for _ in 0..10 {
            assert_eq!(nginx.curl(tls, "warm", &[]).1, bytes(200_000));
        }
    }
    // The old worker goes on until its requests are done. A new one serves meanwhile.
    let old = nginx.workers();
    nginx.signal("-HUP");
    let end = Instant::now() + LONG;
    while nginx.workers().iter().all(|worker| old.contains(worker)) {
        assert!(Instant::now() < end, "{}", nginx.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(nginx.curl(false, "warm", &[]).1, bytes(200_000));
    waiting.push(nginx.begin("cold"));
    // A graceful stop.
    nginx.signal("-QUIT");
    std::thread::sleep(Duration::from_millis(100));
    disk.release(faults);
    for mut stream in waiting {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let log = nginx.log();
        assert!(
            answer.starts_with(b"HTTP/1.1 200 OK") && answer.ends_with(&bytes(300_000)),
            "{log}"
        );
    }
    let mut nginx = nginx;
    let end = Instant::now() + LONG;
    while nginx.master.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "{}", nginx.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    let log = nginx.log();
    assert!(
        !log.contains("[alert]") && !log.contains("exited on signal"),
        "{log}"
    );
}

#[test]
fn a_bad_block_ends_the_answer_and_nothing_else() {
    needs_nginx!();
    needs_disk!();
    let disk = Disk::new();
    let path = disk.cold("bad", &bytes(1_000_000));
    disk.cold("good", &bytes(1_000));
    let fault = disk.break_block(&path, 500 * 1024);
    let nginx = Nginx::start(disk.path(), "");
    let mut answer = Vec::new();
    let _ = nginx.begin("bad").read_to_end(&mut answer);
    let body = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap()
        + 4;
    assert!(answer.len() - body < 1_000_000, "the answer ends early");
    assert!(bytes(1_000_000).starts_with(&answer[body..]));
    assert!(nginx.log().contains("reading"), "{}", nginx.log());
    assert_eq!(nginx.curl(false, "good", &[]).1, bytes(1_000));
    disk.release([fault]);
    assert_eq!(nginx.curl(false, "bad", &[]).1, bytes(1_000_000));
}
