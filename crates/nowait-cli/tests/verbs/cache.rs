//! Tests of `nowait cache save` and `restore`: the restored pages, and the refused snapshots.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::{
    MIB, Said, cached, cached_bytes, cold, directory, drawn_until, evict, fifo, nowait,
    percentages, run, run_with, touch, wait_until, word,
};
use proptest::prelude::*;
use slowdisk::{Filesystem, Log, TestMount};
use test_support::repeat::{Excuse, repeat, unless_reclaimed};

fn save(snapshot: &Path, words: &[&str]) -> Said {
    run(nowait(["cache", "save", "-o", word(snapshot)]).args(words))
}

fn restore(snapshot: &Path) -> Said {
    run(&mut nowait(["cache", "restore", "--json", word(snapshot)]))
}

const HEADER: &str = r#"{"format":"nowait cache","version":1}"#;

/// The snapshot line for a file in its current state, with these ranges.
fn line(path: &Path, ranges: &str) -> String {
    let meta = fs::metadata(path).unwrap();
    format!(
        r#"{{"path":{:?},"size":{},"mtime":[{},{}],"inode":{},"ranges":{ranges}}}"#,
        path,
        meta.size(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ino()
    )
}

/// A complete snapshot with these lines.
fn whole(lines: &[String]) -> String {
    let mut text = format!("{HEADER}\n");
    for line in lines {
        text += &format!("{line}\n");
    }
    text + &format!("{{\"end\":{{\"files\":{}}}}}\n", lines.len())
}

/// The command has synced the file and its directory.
#[test]
fn a_saved_snapshot_is_there_after_a_power_cut() {
    let dir = directory();
    let some = dir.path().join("some");
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        slowdisk::require!(filesystem.available());
        let mount = TestMount::new(filesystem).unwrap();
        let snapshot = mount.path().join("snapshot");
        for (size, more) in [(1, None), (100_000, Some("--force"))] {
            fs::write(&some, vec![1; size]).unwrap();
            let words: Vec<&str> = more.into_iter().chain([word(dir.path())]).collect();
            assert_eq!(save(&snapshot, &words).code, Some(0));
            mount.shut_down(Log::Lost).unwrap();
            mount.remount().unwrap();
            let saved = fs::read_to_string(&snapshot).unwrap();
            assert!(
                saved.contains(&format!("\"size\":{size},")),
                "{filesystem}: {saved}"
            );
            assert!(
                saved.ends_with("{\"end\":{\"files\":1}}\n"),
                "{filesystem}: {saved}"
            );
        }
    }
}

#[test]
fn exactly_the_cached_pages_are_restored() {
    unless_reclaimed(|| {
        for filesystem in [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs] {
            slowdisk::require!(filesystem.available());
            let mount = TestMount::new(filesystem).unwrap();
            let dir = mount.path().join("tree");
            fs::create_dir(&dir).unwrap();
            let some = cold(dir.join("some"), 8 * MIB + 5);
            let none = cold(dir.join("none"), MIB);
            let all = cold(dir.join(OsStr::from_bytes(b"all\xff\n")), 5000);
            for at in [0, 12288, MIB, 5 * MIB + 4096] {
                touch(&some, at..at + 4096);
            }
            touch(&some, 2 * MIB..4 * MIB);
            touch(&some, 8 * MIB..8 * MIB + 5);
            touch(&all, 0..5000);
            let before = cached(&some);
            assert!(before.len() >= 5, "{before:?}");
            let snapshot = mount.path().join("snapshot");
            let said = save(&snapshot, &["-r", word(&dir)]);
            assert_eq!(said.code, Some(0), "{said:?}");
            assert!(said.text().contains("in 2 of 3 files"), "{said:?}");
            for file in [&some, &none, &all] {
                evict(file);
            }
            let said = restore(&snapshot);
            assert_eq!(said.code, Some(0), "{filesystem:?}: {said:?}");
            assert_eq!(said.json()["files"], 2);
            assert_eq!(cached(&some), before, "{filesystem:?}");
            assert_eq!(cached(&none), []);
            assert_eq!(cached(&all), [(0, 5000)]);
        }
    });
}

#[test]
fn the_bytes_of_the_snapshot_are_the_total_of_the_progress() {
    let dir = directory();
    let (file, snapshot) = (dir.path().join("file"), dir.path().join("snapshot"));
    cold(file.clone(), 8 * MIB);
    let metadata = fs::metadata(&file).unwrap();
    let list = format!(
        "{}\n{}\n{}\n",
        r#"{"format": "nowait cache", "version": 1}"#,
        serde_json::json!({
            "path": word(&file),
            "size": metadata.len(),
            "mtime": [metadata.mtime(), metadata.mtime_nsec()],
            "inode": metadata.ino(),
            "ranges": [[0, MIB], [4 * MIB, 7 * MIB]],
        }),
        r#"{"end": {"files": 1}}"#,
    );
    fs::write(&snapshot, list).unwrap();
    let is_enough = |said: &str| {
        let percentages = percentages(said);
        percentages.last() > percentages.first() && said.contains(" left")
    };
    let words = ["cache", "restore", "--rate", "128K", word(&snapshot)];
    let said = drawn_until(&mut nowait(words), is_enough);
    assert!(is_enough(&said) && said.contains("/4M "), "{said}");
    assert!(percentages(&said).is_sorted(), "{said}");
}

#[test]
fn a_relative_path_is_restored_in_another_directory() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 5000);
    touch(&file, 0..5000);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("file", &link).unwrap();
    // The snapshot is written into the saved tree. It does not list itself.
    let snapshot = dir.path().join("snapshot");
    for words in [&["-r", "."][..], &["-r", "./."], &["file"], &["link"]] {
        touch(&file, 0..5000);
        let said = run(nowait(["cache", "save", "--force", "-o", word(&snapshot)])
            .args(words)
            .current_dir(dir.path()));
        assert_eq!(said.code, Some(0), "{said:?}");
        let text = fs::read_to_string(&snapshot).unwrap();
        assert!(
            text.contains(&format!("{:?}", word(&fs::canonicalize(&file).unwrap()))),
            "{text}"
        );
        evict(&file);
        assert_eq!(
            run(&mut nowait(["cache", "restore", word(&snapshot)])).code,
            Some(0)
        );
        assert_eq!(cached(&file), [(0, 5000)]);
    }
}

#[test]
fn changed_files_are_skipped_and_the_others_are_restored() {
    let dir = directory();
    let names = ["longer", "touched", "replaced", "gone", "fifo", "same"];
    let files: Vec<PathBuf> = names
        .iter()
        .map(|name| cold(dir.path().join(name), 5000))
        .collect();
    for file in &files {
        touch(file, 0..5000);
    }
    let snapshot = dir.path().join("snapshot");
    assert_eq!(save(&snapshot, &["-r", word(dir.path())]).code, Some(0));
    let [longer, touched, replaced, gone, became_fifo, same] = &files[..] else {
        panic!()
    };
    File::options()
        .append(true)
        .open(longer)
        .unwrap()
        .write_all(b"x")
        .unwrap();
    let file = File::options().write(true).open(touched).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    drop(file);
    fs::write(dir.path().join("new"), vec![0; 5000]).unwrap();
    fs::rename(dir.path().join("new"), replaced).unwrap();
    fs::remove_file(gone).unwrap();
    fs::remove_file(became_fifo).unwrap();
    fifo(became_fifo.clone());
    for file in [longer, touched, replaced, same] {
        evict(file);
    }
    let said = restore(&snapshot);
    assert_eq!(said.code, Some(1), "{said:?}");
    for part in [
        "longer: skipped: its size",
        "touched: skipped: it was modified",
        "replaced: skipped: it is another file",
        "gone: No such file",
        "fifo: skipped: not a regular file",
    ] {
        assert!(said.err.contains(part), "{part}: {said:?}");
    }
    assert_eq!(said.json()["skipped"], 4, "{said:?}");
    assert_eq!(cached(same), [(0, 5000)]);
    for file in [longer, touched, replaced] {
        assert_eq!(cached(file), [], "{}", file.display());
    }
}

#[test]
fn a_truncated_snapshot_is_refused() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 5000);
    touch(&file, 0..5000);
    let snapshot = dir.path().join("snapshot");
    assert_eq!(save(&snapshot, &[word(&file)]).code, Some(0));
    evict(&file);
    let text = fs::read(&snapshot).unwrap();
    // A snapshot without its last newline is complete.
    for len in 0..text.len() - 1 {
        fs::write(&snapshot, &text[..len]).unwrap();
        let said = restore(&snapshot);
        assert_eq!(said.code, Some(1), "{len}: {said:?}");
        assert!(said.err.contains("snapshot line"), "{len}: {said:?}");
        assert_eq!(said.text(), "", "{len}: {said:?}");
    }
    assert_eq!(cached(&file), []);
}

#[test]
fn other_files_are_refused_before_any_file_is_read() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 5000);
    let good = line(&file, "[[0,5000]]");
    let snapshot = dir.path().join("snapshot");
    let after = |rest: &str| format!("{HEADER}\n{good}\n{rest}\n").into_bytes();
    let latin = [HEADER.as_bytes(), b"\n{\"path\":\"/x\xff\"}\n"].concat();
    for (content, part) in [
        (b"".to_vec(), "not a snapshot"),
        (b"\n".to_vec(), "not a snapshot"),
        (b"PK\x03\x04\0\0\0".to_vec(), "not a snapshot"),
        (
            b"{\"format\":\"nowait cache\",\"version\":2}\n".to_vec(),
            "version 2",
        ),
        (
            b"{\"format\":\"other\",\"version\":1}\n".to_vec(),
            "another format",
        ),
        (after("{"), "not a snapshot"),
        (after(r#"{"path":"/x","size":1e999999}"#), "not a snapshot"),
        (after(&line(&file, "[[0,1,2]]")), "not a snapshot"),
        (latin, "not a snapshot"),
        (after(&" ".repeat(5 << 20)), "too long"),
        (after(r#"{"end":{"files":7}}"#), "last line says 7"),
        (after("{\"end\":{\"files\":1}}\n{}"), "data after the end"),
    ] {
        fs::write(&snapshot, &content).unwrap();
        let said = restore(&snapshot);
        assert_eq!(said.code, Some(1), "{part}: {said:?}");
        assert!(said.err.contains(part), "{part}: {said:?}");
        assert_eq!(cached(&file), [], "{part}");
    }
    for path in [dir.path(), &dir.path().join("missing")] {
        assert_eq!(restore(path).code, Some(1));
    }
}

#[test]
fn an_invalid_entry_is_skipped_and_the_others_are_restored() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 5 * MIB);
    let good = line(&file, "[[0,5242880]]");
    let path = word(&file);
    let parent = word(dir.path());
    let other = |path: &str| good.replace(&format!("{:?}", word(&file)), &format!("{path:?}"));
    let many = format!("[[0,1]{}]", ",[1,2]".repeat(65_536));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let cases = [
        (deep.clone(), "invalid"),
        (format!(r#"{{"other":{deep}}}"#), "no path"),
        (other("file"), "not absolute"),
        (other(&format!("{parent}/../x")), "`..`"),
        (other(&format!("{parent}/./x")), "`..`"),
        (other("/a!b").replace('!', "\\u0000"), "NUL"),
        (other(&"/long".repeat(1000)), "longer"),
        (
            line(&file, "[[4096,8192],[0,4096]]"),
            "not after the previous",
        ),
        (
            line(&file, "[[0,8192],[4096,12288]]"),
            "not after the previous",
        ),
        (line(&file, "[[0,9999999]]"), "beyond the size"),
        (line(&file, "[[0,18446744073709551615]]"), "beyond the size"),
        (line(&file, "[[5,5]]"), "empty"),
        (line(&file, "[[7,5]]"), "empty"),
        (line(&file, "[[-1,5]]"), "invalid"),
        (line(&file, "[[0,99999999999999999999999]]"), "invalid"),
        (line(&file, "\"all\""), "invalid"),
        (line(&file, &many), "more than 65536"),
        (format!(r#"{{"path":{path:?}}}"#), "no size"),
        (r#"{"path_hex":"2fzz"}"#.into(), "hexadecimal"),
        (r#"{"path_hex":"2f0"}"#.into(), "hexadecimal"),
        (r#"{"path_hex":"2fé"}"#.into(), "hexadecimal"),
        ("[1]".into(), "invalid"),
        ("null".into(), "invalid"),
        ("{}".into(), "no path"),
    ];
    let snapshot = dir.path().join("snapshot");
    for (bad, part) in cases {
        evict(&file);
        fs::write(&snapshot, whole(&[bad, good.clone()])).unwrap();
        let said = restore(&snapshot);
        assert_eq!(said.code, Some(1), "{part}: {said:?}");
        assert!(said.err.contains("line 2 is skipped"), "{part}: {said:?}");
        assert!(said.err.contains(part), "{part}: {said:?}");
        assert_eq!(said.json()["skipped"], 1, "{part}: {said:?}");
        assert_eq!(cached_bytes(&file), 5 * MIB, "{part}: {said:?}");
    }
}

#[test]
fn a_huge_snapshot_takes_little_memory() {
    let dir = directory();
    let snapshot = dir.path().join("snapshot");
    let file = File::create(&snapshot).unwrap();
    file.write_all_at(format!("{HEADER}\n").as_bytes(), 0)
        .unwrap();
    // One line has a gigabyte of NUL bytes. Another opens an array at each of 3 MiB bytes.
    file.set_len(1 << 30).unwrap();
    let script = "ulimit -v 200000 && exec \"$0\" \"$@\"";
    let limited = || {
        let mut command = Command::new("sh");
        command
            .args(["-c", script, env!("CARGO_BIN_EXE_nowait")])
            .args(["cache", "restore", "--depth", "1", word(&snapshot)]);
        run(&mut command)
    };
    let said = limited();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("too long"), "{said:?}");
    let ranges = vec!["[0,1]"; 500_000].join(",");
    let text = format!(r#"{{"path":"/x","size":1,"mtime":[0,0],"inode":1,"ranges":[{ranges}]}}"#);
    fs::write(&snapshot, whole(&[text])).unwrap();
    let said = limited();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("more than 65536"), "{said:?}");
}

#[test]
fn a_file_with_many_ranges_has_several_lines() {
    let dir = directory();
    let path = dir.path().join("file");
    // Every other page is cached. There must be enough pages for a second line.
    let pages = 2 * 66_000;
    File::create(&path).unwrap().set_len(pages * 4096).unwrap();
    let file = File::open(&path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let snapshot = dir.path().join("snapshot");
    repeat("four lines", &[Excuse::Reclaimed(&[&path])], || {
        for page in (0..pages).step_by(2) {
            file.read_exact_at(&mut [0], page * 4096).unwrap();
        }
        let said = save(&snapshot, &[word(&path)]);
        assert_eq!(said.code, Some(0), "{said:?}");
        match fs::read_to_string(&snapshot).unwrap().lines().count() {
            4 => Ok(()),
            other => Err(other),
        }
    });
    assert_eq!(restore(&snapshot).code, Some(0));
}

#[test]
fn a_snapshot_passes_through_a_pipe() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 5000);
    touch(&file, 0..5000);
    let saved = nowait(["cache", "save", "-o", "-", word(&file)])
        .output()
        .unwrap();
    assert!(saved.status.success());
    assert!(saved.stdout.starts_with(HEADER.as_bytes()));
    evict(&file);
    let said = run_with(&mut nowait(["cache", "restore", "-"]), &saved.stdout);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(cached(&file), [(0, 5000)]);
}

/// The names in a directory. The caller checks that no temporary file is left.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn only_a_snapshot_is_replaced_and_only_with_force() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 5000);
    touch(&file, 0..5000);
    let at = |name: &str| dir.path().join(name);
    fs::write(at("notes"), "mine").unwrap();
    fs::write(at("empty"), "").unwrap();
    fs::write(at("cut off"), HEADER).unwrap();
    fs::write(at("read-only"), "mine").unwrap();
    fs::set_permissions(at("read-only"), fs::Permissions::from_mode(0o444)).unwrap();
    fs::create_dir(at("directory")).unwrap();
    fifo(at("fifo"));
    assert_eq!(save(&at("snapshot"), &[word(&file)]).code, Some(0));
    std::os::unix::fs::symlink("snapshot", at("link")).unwrap();
    std::os::unix::fs::symlink("missing", at("broken")).unwrap();
    let before = names(dir.path());
    let content = |name: &str| fs::read(at(name)).unwrap();
    let snapshot = content("snapshot");
    for (name, plain, by_force) in [
        ("notes", "--force", "is not a complete snapshot"),
        ("empty", "--force", "is not a complete snapshot"),
        ("cut off", "--force", "is not a complete snapshot"),
        ("read-only", "--force", "is not a complete snapshot"),
        ("directory", "not a regular file", "not a regular file"),
        ("fifo", "not a regular file", "not a regular file"),
        ("link", "not a regular file", "not a regular file"),
        ("broken", "not a regular file", "not a regular file"),
        ("/dev/null", "not a regular file", "not a regular file"),
        ("file", "--force", "is not a complete snapshot"),
    ] {
        for (words, part) in [(&[][..], plain), (&["--force"], by_force)] {
            let said = save(&at(name), &[words, &[word(&file)]].concat());
            assert_eq!(said.code, Some(2), "{name}: {said:?}");
            assert!(said.err.contains(part), "{name}: {said:?}");
            assert!(said.err.contains("name another file"), "{name}: {said:?}");
        }
    }
    let said = save(&at("snapshot"), &[word(&file)]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("snapshot exists"), "{said:?}");
    assert_eq!(names(dir.path()), before);
    for (name, text) in [("notes", "mine"), ("empty", ""), ("read-only", "mine")] {
        assert_eq!(content(name), text.as_bytes(), "{name}");
    }
    assert_eq!(content("snapshot"), snapshot);
    // Without --output, none of the files is taken for the output.
    let said = run(nowait(["cache", "save"])
        .args(["notes", "file"])
        .current_dir(dir.path()));
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("--output"), "{said:?}");
    assert_eq!(content("notes"), b"mine");

    let old = fs::metadata(at("snapshot")).unwrap().ino();
    let other = cold(at("other"), 100);
    touch(&other, 0..100);
    save(&at("snapshot"), &["--force", word(&other)]).done();
    assert_ne!(fs::metadata(at("snapshot")).unwrap().ino(), old);
    let text = String::from_utf8(content("snapshot")).unwrap();
    assert!(text.contains("other") && !text.contains("file\""), "{text}");
}

#[test]
fn a_file_created_at_the_output_path_meanwhile_is_kept() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 5000);
    touch(&file, 0..5000);
    let snapshot = dir.path().join("snapshot");
    for words in [&[][..], &["--force"]] {
        // It saves what is named on its standard input, and so waits for the end of that.
        let mut child = nowait(["cache", "save", "--files0-from", "-", "-o", word(&snapshot)])
            .args(words)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut names = child.stdin.take().unwrap();
        names.write_all(word(&file).as_bytes()).unwrap();
        wait_until("it begins", || {
            fs::read_dir(dir.path()).unwrap().count() >= 2
        });
        fs::write(&snapshot, "mine").unwrap();
        drop(names);
        let said = Said::of(&child.wait_with_output().unwrap());
        assert_eq!(said.code, Some(2), "{said:?}");
        assert_eq!(fs::read_to_string(&snapshot).unwrap(), "mine");
        fs::remove_file(&snapshot).unwrap();
        assert_eq!(self::names(dir.path()), ["file"]);
    }
}

#[test]
fn the_umask_applies_to_a_snapshot() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 5000);
    for (umask, mode) in [("022", 0o644), ("077", 0o600)] {
        let snapshot = dir.path().join(umask);
        let script = "umask \"$3\" && exec \"$0\" cache save -o \"$1\" \"$2\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_nowait")]);
        run(command.args([word(&snapshot), word(&file), umask])).done();
        let meta = fs::metadata(&snapshot).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, mode, "{umask}");
    }
    let said = save(Path::new("/nonexistent/x"), &[word(&file)]);
    assert_eq!(said.code, Some(1), "{said:?}");
}

#[test]
fn a_restore_keeps_its_budget() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 4 * MIB);
    let snapshot = dir.path().join("snapshot");
    fs::write(&snapshot, whole(&[line(&file, "[[1048576,4194304]]")])).unwrap();
    let said = run(&mut nowait([
        "cache",
        "restore",
        "--budget",
        "1M",
        word(&snapshot),
    ]));
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.text().contains("not read: 2M"), "{said:?}");
    assert_eq!(cached(&file), [(MIB, 2 * MIB)]);
}

#[test]
fn a_file_with_several_names_is_listed_once() {
    unless_reclaimed(|| {
        let dir = directory();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let file = cold(tree.join("file"), MIB);
        fs::hard_link(&file, tree.join("link")).unwrap();
        touch(&file, 0..MIB);
        let snapshot = dir.path().join("snapshot");
        for (words, more) in [
            (&["-r", word(&tree)][..], "1 more name"),
            (&["-r", word(&tree), word(&file)], "2 more names"),
        ] {
            let said = save(&snapshot, &[&["--force"], words].concat()).done();
            let sums = format!("saved 1M in 1 of 1 files ({more})\n");
            assert_eq!(said.text(), sums);
            let text = fs::read_to_string(&snapshot).unwrap();
            assert_eq!(text.lines().count(), 3, "{text}");
        }
    });
}

#[test]
fn a_range_that_is_listed_twice_counts_once_in_the_budget() {
    unless_reclaimed(|| {
        let dir = directory();
        let files: Vec<PathBuf> = ["twice", "linked"]
            .iter()
            .map(|name| cold(dir.path().join(name), 2 * MIB))
            .collect();
        let [twice, linked] = &files[..] else {
            panic!()
        };
        let link = dir.path().join("link");
        fs::hard_link(linked, &link).unwrap();
        let snapshot = dir.path().join("snapshot");
        let text = whole(&[
            line(twice, "[[0,2097152]]"),
            line(linked, "[[0,1048576]]"),
            line(twice, "[[0,2097152]]"),
            line(&link, "[[0,1048576]]"),
            // Half of it is new.
            line(&link, "[[524288,1572864]]"),
        ]);
        fs::write(&snapshot, text).unwrap();
        let of_budget = |words: &[&str]| {
            let mut command = nowait(["cache", "restore", "--json", "--budget", "3584K"]);
            run(command.args(words).arg(&snapshot)).done().json()
        };
        for (words, before, after) in [
            (&["--dry-run"][..], 0, 0),
            (&[], 0, 3584 << 10),
            (&[], 3584 << 10, 3584 << 10),
        ] {
            let sums = of_budget(words);
            assert_eq!(sums["other_names"], 2, "{sums}");
            assert_eq!(sums["bytes"], 3584 << 10, "{sums}");
            assert_eq!(sums["cached_before"], before, "{sums}");
            assert_eq!(sums["read_bytes"], (3584 << 10) - before, "{sums}");
            assert_eq!(sums["not_read"]["bytes"], 0, "{sums}");
            assert_eq!(sums["cached_after"], after, "{sums}");
        }
        assert_eq!(cached(twice), [(0, 2 * MIB)]);
        assert_eq!(cached(linked), [(0, 3 * MIB / 2)]);
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// With any change to a snapshot's bytes, the program ends with a message and not by a signal or a
    /// panic, and reads no other files.
    #[test]
    fn damaged_snapshots_end_well(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 1..6)
    ) {
        let dir = directory();
        let file = cold(dir.path().join("file"), 3 * 4096);
        let text = whole(&[line(&file, "[[0,4096]]"), line(&file, "[[8192,12288]]")]);
        let mut bytes = text.into_bytes();
        for (at, byte, how) in changes {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes[at] = b"0123456789[]{},:\"-.e"[usize::from(byte) % 20],
            }
        }
        let snapshot = dir.path().join("snapshot");
        fs::write(&snapshot, &bytes).unwrap();
        let said = restore(&snapshot);
        prop_assert!(matches!(said.code, Some(0 | 1)), "{:?}", said);
        prop_assert!(!said.err.contains("panicked"), "{:?}", said);
        prop_assert!(said.code == Some(0) || said.err.starts_with("nowait: "), "{:?}", said);
        if said.out.is_empty() {
            prop_assert_eq!(cached(&file), []);
        }
    }
}

#[test]
fn a_name_that_open_would_not_create_is_refused() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 4096);
    fs::create_dir(dir.path().join("d")).unwrap();
    for name in ["new/", "new/.", "d/..", "d/", "d/.", "/", "."] {
        let mut command = nowait(["cache", "save", "-o", name, word(&file)]);
        let said = run(command.current_dir(dir.path()));
        assert_eq!(said.code, Some(2), "{name} {said:?}");
        assert!(said.err.contains("is not a file name"), "{name} {said:?}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}
