//! The examples: each is built against both libraries, and does what it says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::disk::{Disk, needs_disk};
use crate::installed::{Linking, Program, run, scratch};
use test_support::limit::LONG;

const C11: [&str; 7] = [
    "cc",
    "-std=gnu11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(name)
}

#[test]
fn ls_prints_what_ls_prints() {
    let here = scratch();
    for (name, size) in [("b", 10), ("a", 20_000), (".hidden", 0)] {
        std::fs::write(here.path().join(name), vec![0; size]).unwrap();
    }
    std::fs::create_dir(here.path().join("directory")).unwrap();
    std::os::unix::fs::symlink("a", here.path().join("link")).unwrap();
    for linking in [Linking::Shared, Linking::Static] {
        let program = Program::compile(&C11, &source("ls.c"), linking);
        let ours = run(program.command().arg(here.path()));
        let mut ls = std::process::Command::new("ls");
        ls.env("LC_ALL", "C")
            .args(["-lAn", "--time-style=+%Y-%m-%d %H:%M"]);
        let theirs = run(ls.arg(here.path()));
        let words = |line: &str| -> Vec<String> {
            let line = line.split(" -> ").next().unwrap_or(line);
            line.split_whitespace().map(str::to_owned).collect()
        };
        let theirs: Vec<_> = theirs.lines().skip(1).map(words).collect();
        let ours: Vec<_> = ours.lines().map(words).collect();
        assert_eq!(ours, theirs);
    }
}

#[test]
fn a_reader_for_each_core_reads_every_byte_right() {
    let here = scratch();
    let path = here.path().join("file");
    std::fs::write(&path, vec![1u8; 8 << 20]).unwrap();
    for linking in [Linking::Shared, Linking::Static] {
        let program = Program::compile(&C11, &source("per_core.c"), linking);
        let said = run(program.command().arg(&path));
        let number = |after: &str| -> u64 {
            let rest = said.split_once(after).unwrap().1;
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap()
        };
        // Each byte is 1, and each of the 20,000 reads of a core has 4,096.
        assert_eq!(
            number("all bytes is "),
            number("second on ") * 20_000 * 4096,
            "{said}"
        );
    }
}

/// The running server, which ends with this value.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(program: &Program, directory: &Path) -> Server {
        let mut child = program
            .command()
            .arg(directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.strip_prefix("http://").unwrap();
        let address = address.split('/').next().unwrap().to_owned();
        Server { child, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Sends a request on a connection of its own. Returns the header and the body.
    fn get(&self, request: &str) -> (String, Vec<u8>) {
        let mut stream = self.connect();
        write!(stream, "{request}\r\nConnection: close\r\n\r\n").unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let header = String::from_utf8(all[..end].to_vec()).unwrap();
        (header, all[end + 4..].to_vec())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_server_serves_files_and_ranges() {
    let here = scratch();
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
    std::fs::write(here.path().join("file"), &bytes).unwrap();
    std::fs::write(here.path().join("empty"), []).unwrap();
    std::fs::create_dir(here.path().join("directory")).unwrap();
    for linking in [Linking::Shared, Linking::Static] {
        let program = Program::compile(&C11, &source("server.c"), linking);
        let server = Server::start(&program, here.path());
        let (header, body) = server.get("GET /file HTTP/1.1");
        assert!(
            header.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n"),
            "{header}"
        );
        assert!(body == bytes);
        let (header, body) = server.get("HEAD /file HTTP/1.1");
        assert!(header.contains("Content-Length: 300000") && body.is_empty());
        assert!(server.get("GET /empty HTTP/1.1").1.is_empty());
        for (range, start, end) in [
            ("0-0", 0, 1),
            ("1000-99999", 1000, 100_000),
            ("299990-", 299_990, 300_000),
            ("299990-999999", 299_990, 300_000),
            ("-77", 299_923, 300_000),
            ("-999999", 0, 300_000),
        ] {
            let (header, body) = server.get(&format!("GET /file HTTP/1.1\r\nRange: bytes={range}"));
            assert!(header.starts_with("HTTP/1.1 206"), "{range}: {header}");
            let said = format!("Content-Range: bytes {start}-{}/300000", end - 1);
            assert!(header.contains(&said), "{range}: {header}");
            assert!(body == bytes[start..end], "{range}");
        }
        for range in ["300000-", "5-3"] {
            let (header, _) = server.get(&format!("GET /file HTTP/1.1\r\nRange: bytes={range}"));
            assert!(header.starts_with("HTTP/1.1 416"), "{range}: {header}");
        }
        for path in ["/missing", "/directory", "/../etc/passwd", "/"] {
            let (header, _) = server.get(&format!("GET {path} HTTP/1.1"));
            assert!(header.starts_with("HTTP/1.1 404"), "{path}: {header}");
        }
        assert!(
            server
                .get("POST /file HTTP/1.1")
                .0
                .starts_with("HTTP/1.1 400")
        );
        // Two requests at once on one connection, and a client that goes away in the middle.
        let mut stream = server.connect();
        write!(
            stream,
            "GET /file HTTP/1.1\r\n\r\nGET /file HTTP/1.1\r\n\r\n"
        )
        .unwrap();
        let mut some = [0; 1000];
        stream.read_exact(&mut some).unwrap();
        drop(stream);
        assert!(server.get("GET /file HTTP/1.1").1 == bytes);
    }
}

#[test]
fn a_disk_that_stalls_delays_no_cached_file() {
    needs_disk!();
    let disk = Disk::new();
    let cold = disk.cold("cold", &[b'c'; 100_000]);
    disk.cold("warm", &[b'w'; 100_000]);
    let program = Program::compile(&C11, &source("server.c"), Linking::Shared);
    let server = Server::start(&program, disk.path());
    // Loads the pages of the program and of the cached file.
    assert_eq!(server.get("GET /warm HTTP/1.1").1, vec![b'w'; 100_000]);
    let faults = disk.stall(&cold);
    let waiting: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = server.connect();
            write!(stream, "GET /cold HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
            stream
        })
        .collect();
    for _ in 0..50 {
        assert_eq!(server.get("GET /warm HTTP/1.1").1, vec![b'w'; 100_000]);
    }
    disk.release(faults);
    for mut stream in waiting {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert!(all.ends_with(&[b'c'; 100_000]));
    }
}
