//! Trees that are deeper than any path may be long: the number of opens, and the results.

use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use test_support::limit::LONG;
use test_support::opens::{self, highest_descriptor, plant, remove, traced};

const PROGRAM: &str = env!("CARGO_BIN_EXE_nowait");

/// The number of levels. A path of 2,048 levels has PATH_MAX bytes.
const LEVELS: usize = 4_096;
/// Every such level has a file.
const FILES: usize = 64;

#[test]
fn each_directory_of_a_deep_tree_is_opened_at_most_twice() {
    slowdisk::require!(traced(Path::new("/dev/null")));
    let root = tempfile::tempdir().unwrap();
    plant(root.path(), LEVELS, FILES);
    let directories = 2 * LEVELS;
    let files = LEVELS / FILES;
    let entries = directories + files;
    for (arguments, expected) in [
        (&["scan", "-r", "--format", "%f"][..], entries),
        (&["du", "-d", "10"], 21),
        (&["warm", "--metadata"], 1),
        (&["warm"], 0),
        (&["fincore", "--json"], 0),
        // The files were written a moment ago.
        (&["evict", "--flush"], 0),
    ] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = traced(log.path()).unwrap();
        command.arg(PROGRAM).args(arguments).arg(root.path());
        let output = command.output().unwrap();
        let opens = opens::count(log.path());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text:.2000}");
        assert!(text.is_empty(), "{arguments:?}: {text:.2000}");
        if expected > 0 {
            let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(lines, expected, "{arguments:?}");
        }
        // The program itself, and each file, needs some more.
        let most = 2 * directories + 100 + 20 * files;
        assert!(
            opens <= most,
            "{arguments:?}: {opens} opens of {directories} directories"
        );
        eprintln!("{arguments:?}: {opens} opens");
    }
    remove(root.path());
}

/// `nowait keep` lists a tree itself. It looks again at all directories after SIGHUP.
#[test]
fn each_directory_of_a_deep_tree_is_kept_with_at_most_two_opens() {
    slowdisk::require!(traced(Path::new("/dev/null")));
    let root = tempfile::tempdir().unwrap();
    plant(root.path(), LEVELS, FILES);
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(LONG)).unwrap();
    let log = directory.path().join("log");
    let errors = directory.path().join("errors");
    let child = traced(&log)
        .unwrap()
        .args([PROGRAM, "keep", "--interval", "36000"])
        .arg(root.path())
        .env("NOTIFY_SOCKET", &socket)
        .stdout(Stdio::null())
        .stderr(File::create(&errors).unwrap())
        .spawn()
        .unwrap();
    let mut child = Killed(child);
    let said = || std::fs::read_to_string(&errors).unwrap();
    let hears = |text: &str| {
        let mut bytes = [0; 4096];
        loop {
            let heard = manager.recv(&mut bytes);
            let heard = heard.unwrap_or_else(|e| panic!("{text}: {e}: {:.2000}", said()));
            let heard = String::from_utf8_lossy(&bytes[..heard]).into_owned();
            if heard.contains(text) {
                break heard;
            }
        }
    };
    hears("READY=1");
    let (directories, files) = (2 * LEVELS, LEVELS / FILES);
    let mut before = 0;
    for look in ["the first look", "the second look"] {
        let resident = format!("resident in {files} files");
        hears(&resident);
        let all = opens::count(&log);
        let opens = all - std::mem::replace(&mut before, all);
        // The program itself, and each file, needs some more.
        let most = 2 * directories + 200 + 40 * files;
        assert!(
            opens <= most,
            "{look}: {opens} opens of {directories} directories"
        );
        eprintln!("{look}: {opens} opens");
        kill_process(Pid::from_child(&child.0), Signal::HUP).unwrap();
        hears("READY=1");
    }
    kill_process(Pid::from_child(&child.0), Signal::TERM).unwrap();
    assert!(child.0.wait().unwrap().success());
    // Up to 64 directories, and what the program has open besides.
    let highest = highest_descriptor(&log);
    assert!(highest < 64 + 32, "descriptor {highest}");
    eprintln!("descriptors up to {highest}");
    let said = said();
    assert!(
        !said
            .lines()
            .any(|line| !line.contains("not watched") && !line.contains("ready: ")),
        "{said:.2000}"
    );
    remove(root.path());
}

/// A process that is killed if the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
