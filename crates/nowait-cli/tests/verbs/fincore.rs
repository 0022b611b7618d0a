//! Tests of `nowait fincore` on files whose cached pages are known.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use test_support::repeat::unless_reclaimed;

use crate::program::{
    Bound, MIB, PAGE, Said, as_nobody, cold, directory, evict, fifo, file, limited, nowait,
    open_directory, overlay_with, run, run_with, touch, while_files_change, word,
};
use serde_json::{Value, json};
use slowdisk::{Filesystem, LoopDevice};

fn fincore(words: &[&str], paths: &[&Path]) -> Said {
    let words = words.iter().map(OsStr::new);
    let paths = paths.iter().map(|path| path.as_os_str());
    run(&mut nowait(
        [OsStr::new("fincore")]
            .into_iter()
            .chain(words)
            .chain(paths),
    ))
}

#[test]
fn cached_pages_are_counted_and_their_ranges_are_listed() {
    unless_reclaimed(|| {
        for filesystem in [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs] {
            let mount = mounted!(filesystem);
            let size = 8 * MIB + 100;
            let path = cold(mount.path().join("file"), size);
            touch(&path, MIB..2 * MIB);
            touch(&path, 8 * MIB..size);
            let report = fincore(&["--json", "--map"], &[&path]).done().json();
            assert_eq!(report["format"], 1);
            assert_eq!(report["page_size"], PAGE);
            let seen = file(&report, &path);
            let cached = (MIB / PAGE) + 1;
            assert_eq!(seen["size"], size);
            assert_eq!(seen["file_pages"], size.div_ceil(PAGE));
            assert_eq!(seen["pages"], cached, "{}", filesystem.name());
            assert_eq!(seen["res"], cached * PAGE);
            assert_eq!(seen["ranges"], json!([[MIB, 2 * MIB], [8 * MIB, size]]));
            assert_eq!(seen["dirty"], 0);
            assert_eq!(seen["source"], "cachestat");
            assert_eq!(seen["unknown"], Value::Null);
            for key in ["size", "file_pages", "pages", "res"] {
                assert_eq!(report["total"][key], seen[key], "{key}");
            }
        }
    });
}

#[test]
fn unwritten_pages_are_dirty() {
    unless_reclaimed(|| {
        let mount = mounted!(Filesystem::Ext4);
        let path = mount.path().join("file");
        fs::write(&path, vec![1; MIB as usize]).unwrap();
        let report = fincore(&["--json"], &[&path]).done().json();
        let bytes = |key: &str| file(&report, &path)[key].as_u64().unwrap();
        assert_eq!(bytes("dirty") + bytes("writeback"), MIB);
        File::open(&path).unwrap().sync_all().unwrap();
        let report = fincore(&["--json"], &[&path]).done().json();
        assert_eq!(file(&report, &path)["dirty"], 0);
        assert_eq!(file(&report, &path)["res"], MIB);
    });
}

#[test]
fn on_an_overlay_pages_are_counted_and_dirty_ones_are_unknown() {
    unless_reclaimed(|| {
        slowdisk::require!(Filesystem::Overlay.available());
        let (_mount, path) = overlay_with("file", 4 * MIB);
        touch(&path, 0..MIB);
        let said = fincore(&["--json"], &[&path]).done().json();
        let seen = file(&said, &path);
        assert_eq!(seen["res"], MIB);
        assert_eq!(seen["source"], "mincore");
        assert_eq!(seen["dirty"], Value::Null);
        assert_eq!(said["total"]["dirty_unknown"], 1);
        let said = fincore(&[], &[&path]).done();
        assert!(
            said.text().contains("mincore does not report them"),
            "{said:?}"
        );
    });
}

#[test]
fn unknown_residency_is_in_no_sum() {
    let dir = open_directory();
    let theirs = cold(dir.path().join("theirs"), 10 * PAGE);
    let (mut command, _copy) = as_nobody(["fincore", "--json", "-r", dir.path().to_str().unwrap()]);
    let report = run(&mut command).in_part().json();
    let seen = file(&report, &theirs);
    for key in ["file_pages", "pages", "res", "dirty", "source"] {
        assert_eq!(seen[key], Value::Null, "{key}");
    }
    let why = seen["unknown"].as_str().unwrap();
    assert!(why.contains("own"), "{why}");
    let total = &report["total"];
    assert_eq!(total["size"], 10 * PAGE);
    assert_eq!(
        (&total["file_pages"], &total["pages"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(
        total["unknown"],
        json!([{"why": why, "files": 1, "size": 10 * PAGE}])
    );
    let (mut command, _copy) = as_nobody([OsStr::new("fincore"), theirs.as_os_str()]);
    let said = run(&mut command).in_part();
    let row = said.text().lines().nth(1).unwrap().split_whitespace();
    assert_eq!(row.take(5).collect::<Vec<_>>(), ["40K", "?", "?", "?", "?"]);
    assert!(
        said.text().contains("unknown: 1 file (40K): the kernel"),
        "{said:?}"
    );
}

#[test]
fn a_hole_of_two_terabytes_is_counted() {
    let mount = mounted!(Filesystem::Ext4);
    let path = mount.path().join("hole");
    File::create(&path).unwrap().set_len(2 << 40).unwrap();
    let report = fincore(&["--json", "--map"], &[&path]).done().json();
    let seen = file(&report, &path);
    assert_eq!(seen["size"], 2u64 << 40);
    assert_eq!(seen["pages"], 0);
    assert_eq!(seen["ranges"], json!([]));
}

#[test]
fn an_empty_file_has_no_share() {
    let dir = directory();
    let path = dir.path().join("empty");
    File::create(&path).unwrap();
    let said = fincore(&["--map"], &[&path]).done();
    let row: Vec<_> = said
        .text()
        .lines()
        .nth(1)
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(row[..3], ["0", "0", "-"]);
}

#[test]
fn names_are_escaped_in_text_and_complete_in_json() {
    let dir = directory();
    let awkward = [
        &b"two\nlines"[..],
        b"not \xff utf-8",
        b"quote ' and \\",
        b"bell\x07",
    ];
    for name in awkward {
        fs::write(dir.path().join(OsStr::from_bytes(name)), "x").unwrap();
    }
    let said = fincore(&["-r"], &[dir.path()]).done();
    // The heading, the files and the total.
    assert_eq!(
        said.text().lines().count(),
        1 + awkward.len() + 1,
        "{said:?}"
    );
    assert!(said.text().contains(r"/two\nlines'"), "{said:?}");
    assert!(said.text().contains(r"/not \377 utf-8'"), "{said:?}");
    assert!(!said.out.contains(&7), "no bell is rung: {said:?}");
    let report = fincore(&["-r", "--json"], &[dir.path()]).done().json();
    let files = report["fincore"].as_array().unwrap();
    let has = |path: &str| {
        files
            .iter()
            .any(|f| f["file"].as_str().unwrap().ends_with(path))
    };
    assert!(has("/two\nlines") && has("/quote ' and \\"), "{report}");
    let hex = files.iter().filter_map(|f| f["file_hex"].as_str());
    let hex: Vec<_> = hex.collect();
    assert_eq!(hex.len(), 1, "{report}");
    assert!(hex[0].ends_with("2f6e6f7420ff207574662d38"), "{hex:?}");
}

#[test]
fn nul_separated_lists_are_read() {
    let dir = directory();
    let (a, b) = (dir.path().join("a"), dir.path().join("b\nc"));
    fs::write(&a, "a").unwrap();
    fs::write(&b, "b").unwrap();
    let list = [a.as_os_str().as_bytes(), b.as_os_str().as_bytes()].join(&0);
    let ask = ["fincore", "--json", "--files0-from", "-"];
    let report = run_with(&mut nowait(ask), &list).done().json();
    assert_eq!(report["fincore"].as_array().unwrap().len(), 2);
    file(&report, &b);

    let stored = dir.path().join("list");
    fs::write(&stored, [&list[..], b"\0"].concat()).unwrap();
    let report = fincore(&["--json", "--files0-from"], &[&stored])
        .done()
        .json();
    assert_eq!(report["total"]["files"], 2);

    let nothing = run_with(&mut nowait(ask), b"").done().json();
    assert_eq!(nothing["total"]["files"], 0);

    // An invalid name is reported, and the other names are processed.
    let long = vec![b'x'; 100_000];
    let odd = [b"", &b"/no/such"[..], &long, a.as_os_str().as_bytes()].join(&0);
    let said = run_with(&mut nowait(ask), &odd).in_part();
    assert_eq!(said.json()["total"]["files"], 1, "{said:?}");
    assert_eq!(said.json()["total"]["failed"], 3, "{said:?}");
    for remark in [
        "name 1 is empty",
        "/no/such: No such file",
        "name 3 is longer",
    ] {
        assert!(said.err.contains(remark), "{remark}: {said:?}");
    }

    let missing = fincore(&["--files0-from"], &[&dir.path().join("none")]).in_part();
    assert!(missing.err.contains("cannot read the list"), "{missing:?}");
    assert_eq!(fincore(&[], &[]).code, Some(2));
    assert_eq!(fincore(&["--files0-from", "-"], &[&a]).code, Some(2));
}

#[test]
fn other_types_of_files_are_reported_and_the_rest_is_counted() {
    let dir = directory();
    let good = dir.path().join("good");
    fs::write(&good, "x").unwrap();
    let pipe = fifo(dir.path().join("fifo"));
    let missing = dir.path().join("missing");
    let device = Path::new("/dev/null");
    let said = fincore(&["--json"], &[&missing, &pipe, device, &good]).in_part();
    assert_eq!(said.json()["total"]["files"], 1);
    assert_eq!(said.json()["total"]["failed"], 3);
    let remarks: Vec<_> = said.err.lines().collect();
    assert_eq!(remarks.len(), 3, "{said:?}");
    let why = ["No such file", "is a FIFO", "is a device"];
    for (remark, why) in remarks.iter().zip(why) {
        assert!(
            remark.starts_with("nowait: /") && remark.contains(why),
            "{remark}"
        );
    }
    // The FIFO was not given by its name.
    let said = fincore(&["-r", "--json"], &[dir.path()]).done();
    assert_eq!(said.json()["total"]["files"], 1);
}

#[test]
fn unreadable_files_are_reported_and_the_rest_is_counted() {
    let dir = open_directory();
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    let secret = dir.path().join("secret");
    for path in [&closed.join("x"), &secret, &dir.path().join("open")] {
        fs::write(path, "x").unwrap();
    }
    for path in [&closed, &secret] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let (mut command, _copy) = as_nobody(["fincore", "--json", "-r", dir.path().to_str().unwrap()]);
    let said = run(&mut command).in_part();
    assert_eq!(said.json()["total"]["files"], 1, "{said:?}");
    assert_eq!(said.json()["total"]["failed"], 2, "{said:?}");
    assert_eq!(said.err.matches("Permission denied").count(), 2, "{said:?}");
}

#[test]
fn only_links_that_are_given_are_followed() {
    let dir = directory();
    let (target, tree) = (dir.path().join("target"), dir.path().join("tree"));
    fs::write(&target, "x").unwrap();
    fs::create_dir(&tree).unwrap();
    let (link, up) = (tree.join("link"), tree.join("up"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    std::os::unix::fs::symlink(dir.path(), &up).unwrap();
    let report = fincore(&["--json"], &[&link]).done().json();
    assert_eq!(file(&report, &link)["size"], 1);
    let report = fincore(&["-r", "--json"], &[&tree]).done().json();
    assert_eq!(report["total"]["files"], 0, "{report}");
    let report = fincore(&["-r", "--json"], &[&up]).done().json();
    assert_eq!(report["total"]["files"], 1, "{report}");
}

#[test]
fn other_filesystems_are_skipped_only_with_x() {
    let mount = mounted!(Filesystem::Ext4);
    let memory = mounted!(Filesystem::Tmpfs);
    let other = mount.path().join("other");
    fs::create_dir(&other).unwrap();
    for path in [mount.path().join("here"), memory.path().join("there")] {
        fs::write(path, "x").unwrap();
    }
    let _bound = Bound::new(memory.path(), &other);
    for (words, files) in [(&["-r", "--json"][..], 2), (&["-r", "-x", "--json"], 1)] {
        let report = fincore(words, &[mount.path()]).done().json();
        assert_eq!(report["total"]["files"], files, "{words:?}");
    }
}

#[test]
fn the_pages_of_a_block_device_are_counted() {
    unless_reclaimed(|| {
        slowdisk::require!(slowdisk::available());
        let dir = directory();
        let image = dir.path().join("image");
        File::create(&image).unwrap().set_len(8 * MIB).unwrap();
        let device = LoopDevice::attach(&image).unwrap();
        let (path, node) = (device.path(), dir.path().join("node"));
        let rdev = fs::metadata(path).unwrap().rdev();
        let kind = rustix::fs::FileType::BlockDevice;
        rustix::fs::mknodat(rustix::fs::CWD, &node, kind, 0o600.into(), rdev).unwrap();
        evict(path);
        touch(path, MIB..2 * MIB);
        let report = fincore(&["--json", "--map"], &[path, &node]).done().json();
        let seen = file(&report, path);
        assert_eq!(seen["size"], 8 * MIB);
        assert_eq!(seen["pages"], MIB / PAGE);
        assert_eq!(seen["file_pages"], 8 * MIB / PAGE);
        assert_eq!(seen["ranges"], json!([[MIB, 2 * MIB]]));
        // Both nodes are of the same device.
        assert_eq!(file(&report, &node)["pages"], MIB / PAGE);
        assert_eq!(file(&report, &node)["counted"], false);
        assert_eq!(report["total"]["pages"], MIB / PAGE);
        let line = fincore(&["-nbo", "RES,SIZE"], &[path]).done();
        let cells: Vec<_> = line.text().split_whitespace().collect();
        assert_eq!(cells, [MIB.to_string(), (8 * MIB).to_string()]);
        // Device nodes of a tree are skipped, and the other verbs refuse them.
        let report = fincore(&["--json"], &[dir.path()]).done().json();
        assert_eq!(report["total"]["files"], 1, "{report}");
        for words in [&["warm"][..], &["evict"], &["cache", "save", "-o", "-"]] {
            let said = run(nowait(words).arg(path)).in_part();
            assert!(said.err.contains("is a device"), "{said:?}");
        }
    });
}

#[test]
fn sums_beyond_64_bits_are_infinite() {
    let mount = mounted!(Filesystem::Tmpfs);
    for name in ["1", "2", "3"] {
        let file = File::create(mount.path().join(name)).unwrap();
        file.set_len(i64::MAX as u64).unwrap();
    }
    let report = fincore(&["--json"], &[mount.path()]).done().json();
    assert_eq!(report["total"]["size"], u64::MAX);
    for words in [&["-b"][..], &[]] {
        let said = fincore(words, &[mount.path()]).done();
        let last = said.text().lines().last().unwrap();
        assert_eq!(last.split_whitespace().next(), Some("Infinity"), "{said:?}");
    }
}

#[test]
fn a_bind_mount_of_an_ancestor_is_not_entered() {
    let mount = mounted!(Filesystem::Tmpfs);
    let inner = mount.path().join("a/inner");
    fs::create_dir_all(&inner).unwrap();
    fs::write(mount.path().join("a/file"), "x").unwrap();
    let _bound = Bound::new(&mount.path().join("a"), &inner);
    let report = fincore(&["--json"], &[mount.path()]).done().json();
    assert_eq!(report["total"]["files"], 1);
    for words in [
        &["warm"][..],
        &["warm", "--metadata"],
        &["evict", "--dry-run"],
        &["cache", "save", "-o", "-"],
    ] {
        let said = run(nowait(words).arg(mount.path()));
        assert_eq!(said.code, Some(0), "{words:?} {said:?}");
        assert!(!said.err.contains("inner"), "{words:?} {said:?}");
    }
}

#[test]
fn thirty_two_descriptors_are_enough() {
    let dir = directory();
    for i in 0..300 {
        let below = dir.path().join(format!("d{i}/e"));
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join("file"), "x").unwrap();
    }
    let mut command = nowait(["fincore", "-r", "--json", dir.path().to_str().unwrap()]);
    let report = run(limited(&mut command, 32)).done().json();
    assert_eq!(report["total"]["files"], 300);
}

#[test]
fn a_file_with_two_names_counts_once() {
    let dir = directory();
    let (a, b, c) = (
        dir.path().join("a"),
        dir.path().join("b"),
        dir.path().join("c"),
    );
    fs::write(&a, "abc").unwrap();
    fs::hard_link(&a, &b).unwrap();
    fs::write(&c, "c").unwrap();
    let report = fincore(&["-r", "--json"], &[dir.path()]).done().json();
    assert_eq!(report["fincore"].as_array().unwrap().len(), 3);
    let total = &report["total"];
    assert_eq!((&total["files"], &total["size"]), (&json!(2), &json!(4)));
    assert_eq!(total["other_names"], 1);
    // A file below two of the given paths counts once, too.
    let report = fincore(&["-r", "--json"], &[&c, dir.path(), &c])
        .done()
        .json();
    assert_eq!(report["total"]["size"], 4);
}

#[test]
fn top_shows_the_files_with_the_most_cached_memory() {
    let dir = directory();
    for i in 0..300u64 {
        let path = dir.path().join(format!("{i:03}"));
        // The order of creation is neither that of names nor that of sizes.
        fs::write(&path, vec![0; (1 + i * 7 % 300) as usize * PAGE as usize]).unwrap();
    }
    let largest = dir.path().join("largest");
    fs::write(&largest, vec![0; 4 * MIB as usize]).unwrap();
    evict(&largest);
    let report = fincore(&["-r", "--json", "--top", "3"], &[dir.path()])
        .done()
        .json();
    let files = report["fincore"].as_array().unwrap().iter();
    let pages: Vec<_> = files.map(|f| f["pages"].as_u64().unwrap()).collect();
    assert_eq!(pages, [300, 299, 298]);
    assert_eq!(report["total"]["files"], 301);
    let none = fincore(&["-r", "--top", "0"], &[dir.path()]).done();
    assert_eq!(none.text().lines().count(), 2, "{none:?}");
}

#[test]
fn many_files_are_shown_in_the_given_order() {
    let dir = directory();
    let paths: Vec<_> = (0..3000).map(|i| dir.path().join(format!("{i}"))).collect();
    let mut list = Vec::new();
    for path in paths.iter().rev() {
        fs::write(path, "x").unwrap();
        list.extend_from_slice(path.as_os_str().as_bytes());
        list.push(0);
    }
    let ask = ["fincore", "--json", "--files0-from", "-"];
    let report = run_with(&mut nowait(ask), &list).done().json();
    let files = report["fincore"].as_array().unwrap();
    let shown: Vec<_> = files.iter().map(|f| f["file"].as_str().unwrap()).collect();
    let named: Vec<_> = paths.iter().rev().map(|p| p.to_str().unwrap()).collect();
    assert_eq!(shown, named);
}

#[test]
fn files_may_vanish_meanwhile() {
    let dir = directory();
    while_files_change(dir.path(), || {
        for _ in 0..30 {
            let said = fincore(&["-r", "--json"], &[dir.path()]);
            assert_eq!(said.code, Some(0), "{said:?}");
            said.json();
            let vanished = |line: &str| line.contains("vanished");
            assert!(said.err.lines().all(vanished), "{said:?}");
        }
    });
}

#[test]
fn a_strip_shows_the_cached_ranges() {
    unless_reclaimed(|| {
        let mount = mounted!(Filesystem::Ext4);
        let path = cold(mount.path().join("file"), 4 * MIB);
        touch(&path, 0..MIB);
        touch(&path, 2 * MIB..2 * MIB + PAGE);
        let strip = |columns: &str, locale: &str| {
            let words = [OsStr::new("fincore"), OsStr::new("--map"), path.as_os_str()];
            let mut command = nowait(words);
            let said = run(command.env("COLUMNS", columns).env("LC_ALL", locale)).done();
            said.text().lines().nth(2).unwrap().to_owned()
        };
        assert_eq!(strip("18", "C.UTF-8"), "[████····░·······]");
        assert_eq!(strip("10", "C"), "[##..-...]");
        assert_eq!(strip("200", "C.UTF-8").chars().count(), 200);
    });
}

#[test]
fn a_closed_pipe_ends_the_program_without_a_message() {
    let dir = directory();
    for i in 0..2000 {
        fs::write(
            dir.path()
                .join(format!("a-name-that-fills-the-pipe-{i:0100}")),
            "",
        )
        .unwrap();
    }
    for json in [&["--json"][..], &[]] {
        let words = [&["fincore", "-r", dir.path().to_str().unwrap()][..], json].concat();
        let mut child = nowait(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn a_write_error_of_the_output_is_reported() {
    let said = nowait(["fincore", "Cargo.toml"])
        .stdout(File::options().write(true).open("/dev/full").unwrap())
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(1));
    assert!(
        err.contains("cannot write to standard output: No space"),
        "{err}"
    );
}

/// util-linux's fincore, if it is installed.
fn real_fincore(words: &[&str], path: &Path) -> Option<Said> {
    let mut command = std::process::Command::new("fincore");
    command.args(words).arg(path).env("LC_ALL", "C");
    std::process::Command::new("fincore")
        .arg("--version")
        .output()
        .ok()?;
    Some(run(&mut command))
}

#[test]
fn options_mean_the_same_as_for_util_linux() {
    unless_reclaimed(|| {
        let mount = mounted!(Filesystem::Ext4);
        let path = cold(mount.path().join("with blank"), 8 * MIB);
        touch(&path, MIB..2 * MIB);
        let Some(_) = real_fincore(&[], &path) else {
            return slowdisk::skip_or_fail("fincore of util-linux");
        };
        let words = |said: &Said| -> Vec<Vec<String>> {
            let lines = said.text().lines();
            lines
                .map(|line| line.split_whitespace().map(String::from).collect())
                .collect()
        };
        for flags in [
            &["-b", "-o", "RES,PAGES,SIZE,FILE"][..],
            &["-o", "res,pages,size,file"],
            &["-n", "-b", "-o", "SIZE,PAGES"],
            &["-nb", "-o", "FILE,RES"],
            &["--noheadings", "--bytes", "--output", "RES"],
            &["-b", "--raw", "-o", "RES,FILE,PAGES"],
        ] {
            let theirs = real_fincore(flags, &path).unwrap();
            assert_eq!(
                words(&fincore(flags, &[&path]).done()),
                words(&theirs),
                "{flags:?}"
            );
        }
        let theirs = real_fincore(&["-J", "-b"], &path).unwrap().json();
        let ours = fincore(&["-J", "-b"], &[&path]).done().json();
        let theirs = theirs["fincore"][0].as_object().unwrap();
        for (key, value) in theirs {
            assert_eq!(&ours["fincore"][0][key], value, "{key}");
        }
        assert!(
            theirs.contains_key("res") && theirs.contains_key("file"),
            "{theirs:?}"
        );
        // Only the selected columns.
        let ours = fincore(&["-J", "-o", "RES,FILE"], &[&path]).done().json();
        assert_eq!(ours["fincore"][0], json!({"file": path, "res": MIB}));
    });
}

#[test]
fn tables_for_scripts_have_no_total_and_no_reasons() {
    let dir = open_directory();
    for name in ["a", "b"] {
        fs::write(dir.path().join(name), vec![1; 5000]).unwrap();
    }
    for (words, lines) in [
        (&["-n"][..], 2),
        (&["-o", "RES,FILE"], 3),
        (&["--raw"], 3),
        (&["--human-readable"], 4),
    ] {
        let said = fincore(words, &[dir.path()]).done();
        assert_eq!(said.text().lines().count(), lines, "{said:?}");
    }
    let path = dir.path().to_str().unwrap();
    let (mut command, _copy) = as_nobody(["fincore", "-n", path]);
    let said = run(&mut command).in_part();
    assert_eq!(said.text().lines().count(), 2, "{said:?}");
    assert!(said.err.starts_with("nowait: unknown: 2 files"), "{said:?}");
}

#[test]
fn pseudo_filesystems_are_skipped_with_one_message() {
    let dir = directory();
    cold(dir.path().join("file"), 1);
    let (proc, sys) = (dir.path().join("proc"), dir.path().join("with blank"));
    for (at, kind) in [(&proc, c"proc"), (&sys, c"sysfs")] {
        fs::create_dir(at).unwrap();
        rustix::mount::mount("none", at, kind, rustix::mount::MountFlags::empty(), None).unwrap();
    }
    struct Unmounted<'a>([&'a Path; 2]);
    impl Drop for Unmounted<'_> {
        fn drop(&mut self) {
            for at in self.0 {
                let _ = rustix::mount::unmount(at, rustix::mount::UnmountFlags::DETACH);
            }
        }
    }
    let _unmounted = Unmounted([&proc, &sys]);
    let link = dir.path().with_extension("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    for root in [dir.path(), &link] {
        for verb in ["fincore", "evict", "warm"] {
            let said = run(&mut nowait([verb, "--json", root.to_str().unwrap()]));
            assert_eq!(said.code, Some(0), "{said:?}");
            let files = match verb {
                "warm" => said.json()["files"].clone(),
                _ => said.json()["total"]["files"].clone(),
            };
            assert_eq!(files, 1, "{said:?}");
            assert_eq!(said.err.lines().count(), 1, "{said:?}");
            assert!(
                said.err.contains("skipped 2 pseudo filesystems"),
                "{said:?}"
            );
            assert!(said.err.contains("proc (proc)"), "{said:?}");
            assert!(said.err.contains("with blank (sysfs)"), "{said:?}");
        }
    }
    fs::remove_file(&link).unwrap();
    // A pseudo filesystem that is given itself is processed.
    let said = fincore(&["--json"], &[&proc.join("sys/kernel")]);
    assert!(
        said.json()["total"]["files"].as_u64().unwrap() > 10,
        "{said:?}"
    );
}

#[test]
fn watching_repeats_until_an_interrupt() {
    let dir = directory();
    let path = dir.path().join("file");
    fs::write(&path, "x").unwrap();
    let out = dir.path().join("out");
    let mut command = nowait(["fincore", "--watch=0.1", path.to_str().unwrap()]);
    let mut child = command.stdout(File::create(&out).unwrap()).spawn().unwrap();
    let tables = || fs::read_to_string(&out).unwrap().matches("SIZE").count();
    crate::program::wait_until("three tables", || tables() >= 3);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // The reader goes away between two tables, or within one.
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = nowait(["fincore", "--watch=0.1", path.to_str().unwrap()]);
    let child = command.stdout(writer).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    drop((reader, command));
    Said::of(&child.wait_with_output().unwrap()).done();
    for wrong in ["0", "-1", "x", "nan"] {
        assert_eq!(
            fincore(&[&format!("--watch={wrong}")], &[&path]).code,
            Some(2)
        );
    }
}

#[test]
fn wrong_usage_is_explained() {
    let path = Path::new("/dev/null");
    for (words, tip) in [
        (&["-o", "COLOUR"][..], "the columns are SIZE, RES"),
        (&["--raw", "--json"], "cannot be used with"),
        (&["-q"], "--help"),
    ] {
        let said = fincore(words, &[path]);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(tip), "{said:?}");
    }
}

/// A process that has some files open and one mapped.
struct Holder(std::process::Child);

impl Holder {
    fn new(open: &[&Path], mapped: &Path) -> Holder {
        let script = "\
import mmap, sys
held = [open(name, 'rb') for name in sys.argv[2:]]
with open(sys.argv[1], 'rb') as file:
    held.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
held.append(open('/proc/self/maps'))
held.append(open('/dev/null'))
print('ready', flush=True)
sys.stdin.read()";
        let mut child = Command::new("python3")
            .args(["-c", script])
            .arg(mapped)
            .args(open)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        Holder(child)
    }

    fn fincore(&self, words: &[&str]) -> Said {
        let pid = self.0.id().to_string();
        run(&mut nowait([&["fincore", "--pid", &pid], words].concat()))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn files_of_a_process_are_those_that_are_open_or_mapped() {
    unless_reclaimed(|| {
        let dir = directory();
        let [open, removed, mapped, other] = ["open", "removed", "mapped\nname", "other"]
            .map(|name| cold(dir.path().join(name), MIB));
        touch(&open, 0..PAGE);
        touch(&mapped, 0..2 * PAGE);
        let holder = Holder::new(
            &[
                &open,
                &open,
                &removed,
                dir.path().join("mapped\nname").as_path(),
            ],
            &mapped,
        );
        fs::remove_file(&removed).unwrap();
        let said = holder.fincore(&["-J"]).done();
        let report = said.json();
        assert_eq!(file(&report, &open)["res"], PAGE);
        assert_eq!(file(&report, &mapped)["res"], 2 * PAGE);
        let gone = dir.path().join("removed (deleted)");
        assert_eq!(file(&report, &gone)["res"], 0);
        assert_eq!(file(&report, &gone)["size"], MIB);
        let names: Vec<&str> = report["fincore"]
            .as_array()
            .unwrap()
            .iter()
            .map(|file| file["file"].as_str().unwrap())
            .collect();
        assert!(!names.contains(&word(&other)), "{names:?}");
        assert!(
            names.iter().any(|name| name.contains("libc.so.6")),
            "{names:?}"
        );
        assert!(
            !names.iter().any(|name| name.starts_with("/proc/")),
            "{names:?}"
        );
        assert!(!names.contains(&"/dev/null"), "{names:?}");
        // The table has the same files.
        let table = holder
            .fincore(&["--noheadings", "-b", "-o", "RES,FILE"])
            .done();
        assert!(
            table.text().contains(&format!(" {}\n", open.display())),
            "{table:?}"
        );
        assert_eq!(table.text().matches(word(&open)).count(), 1);
    });
}

#[test]
fn mapped_files_have_their_own_names() {
    // /proc/PID/maps writes two of these names alike.
    let dir = crate::program::open_directory();
    let names = ["a\nb", "a\\012b", "c (deleted)", "d\\012\n\\134e"];
    let mapped = names.map(|name| cold(dir.path().join(name), MIB));
    mapped.iter().for_each(|path| touch(path, 0..PAGE));
    let script = "\
import mmap, os, sys
files = [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]
held = [mmap.mmap(file, 0, prot=mmap.PROT_READ) for file in files]
[held[n][0] for n in range(len(held))]
print('ready', flush=True)
sys.stdin.read()";
    for user in [0, 65534] {
        // Python's mmap duplicates the descriptor.
        let script = script.replace("print(", "os.closerange(3, 100)\nprint(");
        let mut command = Command::new("python3");
        command
            .args(["-c", &script])
            .args(&mapped)
            .uid(user)
            .gid(user);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let holder = Holder(child);
        let pid = holder.0.id().to_string();
        let words = ["fincore", "--pid", &pid, "-J"];
        let (mut command, _copy) = as_nobody(words);
        let said = match user {
            0 => run(&mut nowait(words)),
            _ => run(&mut command),
        };
        assert_eq!(said.err, "");
        let report = said.json();
        for path in &mapped {
            let all = report["fincore"].as_array().unwrap();
            let shown = all.iter().filter(|one| one["file"] == word(path));
            assert_eq!(shown.count(), 1, "{user}: {}: {report:#}", path.display());
        }
        let of_dir = |one: &&Value| one["file"].as_str().unwrap().starts_with(word(dir.path()));
        assert_eq!(
            report["fincore"]
                .as_array()
                .unwrap()
                .iter()
                .filter(of_dir)
                .count(),
            4
        );
    }
}

#[test]
fn a_process_that_cannot_be_looked_at_is_reported() {
    let holder = Holder::new(&[], Path::new("/etc/passwd"));
    let pid = holder.0.id().to_string();
    let (mut command, _copy) = as_nobody(["fincore", "--pid", &pid]);
    let said = run(&mut command).in_part();
    let why = format!("nowait: /proc/{pid}: Permission denied (os error 13)\n");
    assert_eq!(said.err, why);
    // The others are still shown.
    let both = format!("4194304,{pid}");
    let said = run(&mut nowait(["fincore", "--pid", &both])).in_part();
    assert_eq!(said.err, "nowait: /proc/4194304: no such process\n");
    assert!(said.text().contains("/etc/passwd"), "{said:?}");
    for words in [
        vec!["--pid", "0"],
        vec!["--pid", "x"],
        vec!["--pid", "1", "file"],
    ] {
        let said = run(&mut nowait([&["fincore"], &words[..]].concat()));
        assert_eq!(said.code, Some(2), "{words:?}: {said:?}");
    }
}
