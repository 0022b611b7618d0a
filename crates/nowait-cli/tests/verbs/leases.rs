//! Tests of leases for writing (fcntl(2)) that another process holds: no verb breaks them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use test_support::repeat::unless_reclaimed;

use crate::program::{MIB, as_nobody, cached_bytes, cold, directory, file, nowait, run, word};

/// A process that holds a lease for writing.
struct Holder(Child);

/// Opens the file, moves the position, takes the lease, and waits for the end of its input. Then it
/// prints what has changed.
const HOLDER: &str = "\
import fcntl, os, signal, sys
broken = []
signal.signal(signal.SIGIO, lambda *_: broken.append('broken'))
file = os.open(sys.argv[1], os.O_RDWR)
os.lseek(file, 12345, os.SEEK_SET)
while fcntl.fcntl(file, fcntl.F_GETLEASE) != fcntl.F_WRLCK:
    # A child of another test may have the file open until it executes its program.
    try: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError: pass
flags = fcntl.fcntl(file, fcntl.F_GETFL)
print('held', flush=True)
sys.stdin.read()
kept = fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_WRLCK
if not kept: broken.append('not kept')
if os.lseek(file, 0, os.SEEK_CUR) != 12345: broken.append('moved')
if fcntl.fcntl(file, fcntl.F_GETFL) != flags: broken.append('flags')
print(' '.join(broken) or 'as before')";

impl Holder {
    fn of(path: &Path) -> Holder {
        Holder::with(HOLDER, path)
    }

    /// A holder that runs this script.
    fn with(script: &str, path: &Path) -> Holder {
        let mut child = Command::new("python3")
            .args(["-c", script, word(path)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.as_mut().unwrap();
        BufReader::with_capacity(1, out)
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "held\n");
        Holder(child)
    }

    /// The changes that the holder has noticed.
    fn end(self) -> String {
        let output = self.0.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

/// Two files of a directory in the page cache. The first one is under a lease.
fn leased() -> (tempfile::TempDir, [std::path::PathBuf; 2], Holder) {
    let dir = directory();
    let files = ["leased", "other"].map(|name| cold(dir.path().join(name), MIB));
    files.iter().for_each(|path| drop(fs::read(path).unwrap()));
    let holder = Holder::of(&files[0]);
    (dir, files, holder)
}

/// The end of the message about a file that is not opened.
const NOT_OPENED: &str = "holds a lease for writing on it, which opening it would break\n";

#[test]
fn the_pages_of_a_file_under_lease_are_counted_and_evicted_without_opening_it() {
    unless_reclaimed(|| {
        let (dir, [leased, other], holder) = leased();
        let tree = word(dir.path());
        let report = run(&mut nowait(["fincore", "-J", "--map", tree]))
            .done()
            .json();
        assert_eq!(file(&report, &leased)["res"], MIB);
        assert_eq!(
            file(&report, &leased)["ranges"],
            serde_json::json!([[0, MIB]])
        );
        let saved = dir.path().join("saved");
        run(&mut nowait(["cache", "save", "-o", word(&saved), tree])).done();
        let text = fs::read_to_string(&saved).unwrap();
        assert!(text.contains(word(&leased)), "{text}");
        let said = run(&mut nowait(["evict", "--flush", word(&leased)]));
        assert!(
            said.code == Some(1) && said.err.ends_with(NOT_OPENED),
            "{said:?}"
        );
        run(&mut nowait(["evict", tree])).done();
        let report = run(&mut nowait(["fincore", "-J", word(&leased)]))
            .done()
            .json();
        assert_eq!(file(&report, &leased)["res"], 0);
        assert_eq!(holder.end(), "as before");
        assert_eq!(cached_bytes(&other), 0);
    });
}

#[test]
fn a_file_with_holes_under_lease_keeps_its_position() {
    let dir = directory();
    let path = dir.path().join("holes");
    let mut sparse = fs::File::create(&path).unwrap();
    sparse.write_all(&[1; 4096]).unwrap();
    sparse.set_len(1 << 30).unwrap();
    // Every other page is cached, so that the pages are asked for one by one.
    let script = "import os, sys\nf = os.open(sys.argv[1], os.O_RDWR)\nos.posix_fadvise(f, 0, 0, os.POSIX_FADV_RANDOM)\n\
                  for page in range(0, 4096, 2): os.pread(f, 1, page << 12)";
    let read = Command::new("python3")
        .args(["-c", script, word(&path)])
        .status();
    assert!(read.unwrap().success());
    drop(sparse);
    let holder = Holder::of(&path);
    let report = run(&mut nowait(["fincore", "-J", "--map", word(&path)]))
        .done()
        .json();
    assert!(
        file(&report, &path)["res"].as_u64() >= Some(8 * MIB),
        "{report}"
    );
    run(&mut nowait(["evict", "--dry-run", word(&path)])).done();
    assert_eq!(holder.end(), "as before");
}

#[test]
fn a_file_under_lease_is_neither_read_nor_kept() {
    unless_reclaimed(|| {
        let (dir, [leased, other], holder) = leased();
        let tree = word(dir.path());
        let message = format!(
            "nowait: {}: process {} {NOT_OPENED}",
            word(&leased),
            holder.0.id()
        );
        let saved = dir.path().join("saved");
        run(&mut nowait(["cache", "save", "-o", word(&saved), tree])).done();
        run(&mut nowait(["evict", tree])).done();
        for words in [&["warm", tree][..], &["cache", "restore", word(&saved)]] {
            let said = run(&mut nowait(words));
            assert_eq!(
                (said.code, said.err.as_str()),
                (Some(1), message.as_str()),
                "{words:?}"
            );
            assert_eq!(cached_bytes(&other), MIB);
            crate::program::evict(&other);
        }
        let mut keep = nowait(["keep", tree]);
        keep.stderr(Stdio::piped()).stdout(Stdio::null());
        let mut keep = keep.spawn().unwrap();
        crate::program::wait_until("the other file is kept", || cached_bytes(&other) == MIB);
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&keep),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        assert!(keep.wait().unwrap().success());
        let said = std::io::read_to_string(keep.stderr.take().unwrap()).unwrap();
        assert!(said.contains(&message), "{said}");
        assert_eq!(holder.end(), "as before");
    });
}

#[test]
fn a_file_whose_holder_may_not_be_asked_is_reported() {
    unless_reclaimed(|| {
        let (_dir, [leased, other], holder) = leased();
        fs::set_permissions(leased.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        for words in [&["fincore", word(&leased)][..], &["evict", word(&leased)]] {
            let (mut command, _home) = as_nobody(words);
            let said = run(&mut command);
            assert_eq!(said.code, Some(1), "{said:?}");
            let reason = "which opening it would break; the process's descriptor cannot be used: ";
            assert!(said.err.contains(reason), "{said:?}");
        }
        assert_eq!(cached_bytes(&other), MIB);
        assert_eq!(holder.end(), "as before");
    });
}

#[test]
fn a_lease_for_reading_hinders_nothing() {
    unless_reclaimed(|| {
        let dir = directory();
        let path = cold(dir.path().join("file"), MIB);
        let script = HOLDER
            .replace("F_WRLCK", "F_RDLCK")
            .replace("O_RDWR", "O_RDONLY");
        let holder = Holder::with(&script, &path);
        run(&mut nowait(["warm", word(&path)])).done();
        assert_eq!(cached_bytes(&path), MIB);
        run(&mut nowait(["evict", word(&path)])).done();
        assert_eq!(cached_bytes(&path), 0);
        assert_eq!(holder.end(), "as before");
    });
}
