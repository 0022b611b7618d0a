//! checksum beside sha256sum(1): the same sums of the same files, of odd names and sizes, cold and warm.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

fn checksum(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_checksum"));
    command.current_dir(dir).args(arguments).output().unwrap()
}

/// A tree of files of all sizes.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
    std::fs::create_dir(tree.join("empty")).unwrap();
    let sizes = [0, 1, 4095, 4096, 4097, 131_071, 131_072, 131_073, 3_000_000];
    for (n, size) in sizes.into_iter().cycle().take(200).enumerate() {
        let place = ["", "a", "a/b", "a/b/c"][n % 4];
        let bytes: Vec<u8> = (0..size).map(|i| ((i * (n + 1)) >> 3) as u8).collect();
        std::fs::write(tree.join(place).join(format!("file {n}")), bytes).unwrap();
    }
    for name in [&b"new\nline"[..], b"back\\slash", b"\xff\xfe", b"-n"] {
        std::fs::write(tree.join(OsStr::from_bytes(name)), name).unwrap();
    }
    std::os::unix::fs::symlink("file 0", tree.join("link")).unwrap();
    let fifo = tree.join("fifo");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, fifo, kind, 0o600.into(), 0).unwrap();
    dir
}

fn evict(path: &Path) {
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            evict(&entry.path());
        } else if kind.is_file() {
            slowdisk::evict(&std::fs::File::open(entry.path()).unwrap()).unwrap();
        }
    }
}

fn lines(output: &[u8]) -> BTreeSet<Vec<u8>> {
    output.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect()
}

#[test]
fn a_tree_has_the_sums_that_sha256sum_says() {
    let dir = tree();
    let theirs = Command::new("find")
        .args(["tree", "-type", "f", "-exec", "sha256sum", "{}", "+"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(theirs.status.success(), "{theirs:?}");
    assert_eq!(lines(&theirs.stdout).len(), 205);
    for cold in [false, true] {
        if cold {
            evict(&dir.path().join("tree"));
        }
        let ours = checksum(dir.path(), &["tree"]);
        assert!(ours.status.success(), "{ours:?}");
        assert_eq!(lines(&ours.stdout), lines(&theirs.stdout));
    }
}

#[test]
fn what_is_missing_is_said_and_the_rest_is_done() {
    let dir = tree();
    let ours = checksum(
        dir.path(),
        &["none", "tree/a/file 1", "tree/link", "tree/a/b/c"],
    );
    assert_eq!(ours.status.code(), Some(1));
    let said = String::from_utf8(ours.stderr).unwrap();
    assert_eq!(
        said,
        "checksum: none: No such file or directory (os error 2)\n"
    );
    let sums = String::from_utf8(ours.stdout).unwrap();
    let mut lines = sums.lines();
    assert!(lines.next().unwrap().ends_with("  tree/a/file 1"));
    assert!(lines.next().unwrap().ends_with("  tree/link"));
    assert_eq!(lines.count(), 50);
    assert_eq!(checksum(dir.path(), &[]).status.code(), Some(2));
}
