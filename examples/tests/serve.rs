//! serve beside what curl(1) makes of it: whole files and ranges, warm and cold, byte by byte; what a
//! client may not have; headers.

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
        assert!(url.starts_with("https://127.0.0.1:"), "{url}");
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
        (status, head.to_ascii_lowercase(), output.stdout)
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
    head.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
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
            (Some("-99999999"), 0..bytes.len()),
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
fn ranges_that_lead_nowhere_are_refused_and_odd_ones_ignored() {
    let server = Server::new(&[]);
    for range in ["5000001-", "9999999999999-", "-0"] {
        let (status, head, body) = server.get("/large", &["-r", range]);
        assert_eq!((status, body.len()), (416, 0), "{range}");
        assert_eq!(value(&head, "content-range"), Some("bytes */5000001"));
    }
    assert_eq!(server.get("/empty", &["-r", "0-"]).0, 416);
    for range in [
        "bytes=9-5",
        "bytes=0-1,4-5",
        "bytes=",
        "bytes=-",
        "bytes=+1-2",
        "lines=1-2",
    ] {
        let (status, _, body) = server.get("/large", &["-H", &format!("Range: {range}")]);
        assert_eq!((status, body.len()), (200, 5_000_001), "{range}");
    }
}

#[test]
fn what_a_client_has_is_told_by_tag_and_date() {
    let server = Server::new(&[]);
    let (_, head, _) = server.get("/large", &["-I"]);
    let tag = value(&head, "etag").unwrap().to_owned();
    let (_, head, _) = server.get("/large", &["-I"]);
    assert_eq!(value(&head, "etag"), Some(&*tag));
    let (status, _, body) = server.get("/large", &["-H", &format!("If-None-Match: {tag}")]);
    assert_eq!((status, body.len()), (304, 0));
    // The date with its capitals again.
    let modified = std::fs::metadata(server.file("large"))
        .unwrap()
        .modified()
        .unwrap();
    let date = httpdate::fmt_http_date(modified);
    assert_eq!(
        value(&head, "last-modified"),
        Some(&*date.to_ascii_lowercase())
    );
    for (known, status) in [
        (&*tag, 206),
        (&*date, 206),
        ("\"another\"", 200),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 200),
    ] {
        let known = format!("If-Range: {known}");
        assert_eq!(
            server.get("/large", &["-r", "0-9", "-H", &known]).0,
            status,
            "{known}"
        );
    }
    std::fs::write(server.file("large"), b"changed").unwrap();
    let (status, _, body) = server.get("/large", &["-H", &format!("If-None-Match: {tag}")]);
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
    assert_eq!((status, value(&head, "allow")), (405, Some("get, head")));
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
