//! serve as curl(1) sees it: whole files and ranges, warm and cold, byte by byte; refused paths; headers; the
//! demo. The tests of crates/nowait-serve-dir have the other responses of ServeDir.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server of a directory with some files, which ends with its test.
struct Server {
    child: Child,
    url: String,
    dir: tempfile::TempDir,
}

impl Server {
    fn new(arguments: &[&str]) -> Server {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(root.join("large"), large()).unwrap();
        std::fs::write(root.join("empty"), b"").unwrap();
        std::fs::write(root.join("with space.txt"), b"text").unwrap();
        std::fs::write(root.join("sub/index.html"), b"<p>index").unwrap();
        std::fs::write(dir.path().join("secret"), b"secret").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_serve"));
        let command = command.args(["--listen", "127.0.0.1:0"]).args(arguments);
        let spawned = command.arg(&root).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap();
        let mut url = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        let scheme = if arguments.contains(&"--http") {
            "http"
        } else {
            "https"
        };
        assert!(url.starts_with(&format!("{scheme}://127.0.0.1:")), "{url}");
        Server { child, url, dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("root").join(name)
    }

    fn evict(&self, name: &str) {
        slowdisk::evict(&std::fs::File::open(self.file(name)).unwrap()).unwrap();
    }

    /// The response that curl receives: status, head and body.
    fn get(&self, path: &str, arguments: &[&str]) -> (u16, String, Vec<u8>) {
        let head = tempfile::NamedTempFile::new().unwrap();
        let output = Command::new("curl")
            .args(["-sS", "-k", "--path-as-is", "--max-time", "60", "-D"])
            .arg(head.path())
            .args(arguments)
            .arg(format!("{}{path}", self.url))
            .output()
            .expect("curl");
        assert!(output.status.success(), "{path} {arguments:?}: {output:?}");
        let head = std::fs::read_to_string(head.path()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head, output.stdout)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn large() -> Vec<u8> {
    (0..5_000_001u64)
        .map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8)
        .collect()
}

/// The value of a header.
fn value<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    let (_, value) = headers.find(|(found, _)| found.eq_ignore_ascii_case(name))?;
    Some(value)
}

#[test]
fn files_and_their_ranges_arrive_byte_by_byte() {
    let server = Server::new(&[]);
    let bytes = large();
    for cold in [false, true] {
        for (range, part) in [
            (None, 0..bytes.len()),
            (Some("0-0"), 0..1),
            (Some("0-"), 0..bytes.len()),
            (Some("1-99999"), 1..100_000),
            (Some("4096-8191"), 4096..8192),
            (Some("4999999-9999999999"), 4_999_999..bytes.len()),
            (Some("-1"), bytes.len() - 1..bytes.len()),
            (Some("-5000001"), 0..bytes.len()),
        ] {
            if cold {
                server.evict("large");
            }
            let arguments = range.map_or(vec![], |range| vec!["-r", range]);
            let (status, head, body) = server.get("/large", &arguments);
            assert!(
                body == bytes[part.clone()],
                "{range:?}: {} bytes",
                body.len()
            );
            let len = part.len().to_string();
            assert_eq!(value(&head, "content-length"), Some(&*len));
            assert_eq!(value(&head, "accept-ranges"), Some("bytes"));
            match range {
                None => assert_eq!(status, 200),
                Some(_) => {
                    let words = format!("bytes {}-{}/5000001", part.start, part.end - 1);
                    assert_eq!(status, 206);
                    assert_eq!(value(&head, "content-range"), Some(&*words));
                }
            }
            let (same, of_head, none) = server.get("/large", &[&["-I"], &arguments[..]].concat());
            assert_eq!((same, none.starts_with(b"HTTP")), (status, true));
            assert_eq!(value(&of_head, "content-length"), Some(&*len));
        }
    }
}

#[test]
fn ranges_beyond_the_end_and_odd_ones_are_refused() {
    let server = Server::new(&[]);
    // RFC 9110 would serve the whole file for a suffix that is longer than it.
    for range in [
        "5000001-",
        "9999999999999-",
        "-5000002",
        "-0",
        "9-5",
        "lines",
        "0-1,4-5",
    ] {
        let (status, head, _) = server.get("/large", &["-r", range]);
        assert_eq!(status, 416, "{range}");
        assert_eq!(value(&head, "content-range"), Some("bytes */5000001"));
    }
}

#[test]
fn a_client_names_its_version_by_tag_and_date() {
    let server = Server::new(&[]);
    let (_, head, _) = server.get("/large", &["-I"]);
    let tag = value(&head, "etag").unwrap().to_owned();
    let date = value(&head, "last-modified").unwrap().to_owned();
    let (_, head, _) = server.get("/large", &["-I"]);
    assert_eq!(value(&head, "etag"), Some(&*tag));
    let (status, _, body) = server.get("/large", &["-H", &format!("If-None-Match: {tag}")]);
    assert_eq!((status, body.len()), (304, 0));
    let weak = format!("W/{tag}");
    for (known, range, status) in [
        (&*tag, "0-9", 206),
        (&date, "0-9", 206),
        (&tag, "9999999-", 416),
        (&weak, "0-9", 200),
        ("\"another\"", "0-9", 200),
        ("\"another\"", "9999999-", 200),
        ("Thu, 01 Jan 1970 00:00:00 GMT", "0-9", 200),
    ] {
        let header = format!("If-Range: {known}");
        let (found, _, body) = server.get("/large", &["-r", range, "-H", &header]);
        assert_eq!(found, status, "{known}");
        match status {
            206 => assert!(body == large()[..10], "{known}"),
            200 => assert!(body == large(), "{known}"),
            _ => assert_eq!(body, b""),
        }
    }
    std::fs::write(server.file("large"), b"changed").unwrap();
    let (status, _, body) = server.get("/large", &["-H", &format!("If-None-Match: {tag}")]);
    assert_eq!((status, &body[..]), (200, &b"changed"[..]));
    // A client that continues with the old version gets all of the new one.
    let (status, _, body) = server.get("/large", &["-r", "3-", "-H", &format!("If-Range: {tag}")]);
    assert_eq!((status, &body[..]), (200, &b"changed"[..]));
}

#[test]
fn nothing_but_files_below_the_root_is_served() {
    let server = Server::new(&[]);
    for path in [
        "/../secret",
        "/sub/../../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/sub/%2e%2e/%2e%2e/secret",
        "/none",
        "/large/more",
        "/a%00b",
        "/",
    ] {
        let (status, _, body) = server.get(path, &[]);
        assert_eq!((status, body.len()), (404, 0), "{path}");
    }
    assert_eq!(server.get("/with%20space.txt", &[]).2, b"text");
    assert_eq!(server.get("//./sub/", &[]).2, b"<p>index");
    let (status, head, _) = server.get("/large", &["-X", "DELETE"]);
    assert_eq!((status, value(&head, "allow")), (405, Some("GET,HEAD")));
}

#[test]
fn many_clients_are_served_at_once() {
    let server = Server::new(&[]);
    let bytes = large();
    server.evict("large");
    std::thread::scope(|s| {
        for n in 0..16 {
            let (server, bytes) = (&server, &bytes);
            s.spawn(move || {
                let range = format!("{}-{}", n * 300_000, n * 300_000 + 399_999);
                let (_, _, body) = server.get("/large", &["-r", &range]);
                assert!(body == bytes[n * 300_000..n * 300_000 + 400_000]);
            });
        }
    });
}

#[test]
fn a_certificate_that_is_given_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(at("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(at("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (cert, key) = (path(&at("cert.pem")), path(&at("key.pem")));
    let server = Server::new(&["--cert", &cert, "--key", &key]);
    let trusting = Command::new("curl")
        .args(["-sS", "--cacert", &cert])
        .arg(format!("{}/with%20space.txt", server.url))
        .output()
        .unwrap();
    assert_eq!(trusting.stdout, b"text", "{trusting:?}");
}

#[test]
fn a_server_without_tls_serves_the_same() {
    let server = Server::new(&["--http"]);
    assert_eq!(server.get("/with%20space.txt", &[]).2, b"text");
    assert_eq!(
        server.get("/large", &["-r", "1-99999"]).2,
        large()[1..100_000]
    );
}

/// Connections are kept, cached and evicted files beside each other.
#[test]
fn wrk_finds_no_error_with_tls_and_without() {
    for arguments in [&[][..], &["--http"]] {
        let server = Server::new(arguments);
        let many = ["large", "with%20space.txt", "empty", "sub/"];
        let script = server.dir.path().join("paths.lua");
        let list = many.map(|path| format!("'/{path}'")).join(",");
        let text = format!(
            "local paths, next = {{{list}}}, 0\n\
             request = function()\n\
             next = next % #paths + 1\n\
             return wrk.format('GET', paths[next])\n\
             end\n"
        );
        std::fs::write(&script, text).unwrap();
        let wrk = Command::new("wrk")
            .args(["--threads", "2", "--connections", "64", "--duration", "2s"])
            // The usual two seconds pass on a busy machine.
            .args(["--timeout", "300s"])
            .arg("--script")
            .arg(&script)
            .arg(&server.url)
            .stdout(Stdio::piped())
            .spawn()
            .expect("wrk, which scripts/install-deps.sh installs");
        for _ in 0..20 {
            server.evict("large");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let output = wrk.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && said.contains("requests in"),
            "{said}"
        );
        let read_none = said.contains(" 0 requests in");
        let errors = said.contains("Socket errors") || said.contains("Non-2xx");
        assert!(!read_none && !errors, "{arguments:?}: {said}");
    }
}

#[test]
fn the_demo_shows_latencies_of_both_backends() {
    let server = Server::new(&["--http", "--demo"]);
    // The URL is that of the page.
    let (status, head, page) = server.get("", &[]);
    assert_eq!(status, 200);
    assert_eq!(
        value(&head, "content-type"),
        Some("text/html; charset=utf-8")
    );
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("<svg") && page.contains("/demo/latency.json"));
    let figures = loop {
        let (status, head, figures) = server.get("/latency.json", &[]);
        assert_eq!(status, 200);
        assert_eq!(value(&head, "content-type"), Some("application/json"));
        let figures: serde_json::Value = serde_json::from_slice(&figures).unwrap();
        if figures["results"].as_array().unwrap().len() >= 2 {
            break figures;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    for result in figures["results"].as_array().unwrap() {
        for side in ["nowait", "tokio"] {
            for kind in ["cached", "uncached"] {
                let part = &result[side][kind];
                assert!(part["count"].as_u64().unwrap() > 0, "{result}");
                let [p50, p99] = ["p50_us", "p99_us"].map(|at| part[at].as_f64().unwrap());
                assert!(0.0 < p50 && p50 <= p99, "{result}");
            }
        }
    }
    // The files of the demo are served, too. The page is at one path alone.
    let other = server.url.strip_suffix("/demo").unwrap();
    assert!(other.starts_with("http://127.0.0.1:"));
    assert_eq!(
        std::fs::read_dir(server.file("")).unwrap().count(),
        1000 + 50 + 4
    );
}
