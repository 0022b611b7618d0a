//! `nowait ls` as its users meet it, beside the real ls.

#[path = "common/program.rs"]
mod program;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use program::{
    Bound, Said, as_nobody, directory, fifo, limited, nowait, on_a_terminal, open_directory, run,
    word,
};
use slowdisk::{Fault, FileType, Filesystem, ServedDirectory, ServedEntry, SlowDisk, TestMount};

fn ls(words: &[&str]) -> Said {
    run(&mut nowait(["ls"].iter().chain(words)))
}

/// The real one, without the locale's order.
fn real_ls(words: &[&str]) -> Said {
    let said = run(Command::new("ls").args(words).env("LC_ALL", "C"));
    assert_eq!(said.code, Some(0), "{said:?}");
    said
}

fn touch(path: &Path) {
    File::create(path).unwrap();
}

/// A tree with something of every kind.
fn tree(root: &Path) {
    for dir in ["a", "a/deep", "b", ".hidden"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for (at, file) in [
        "z",
        "a/x",
        "a/deep/y",
        "b/big",
        ".dot",
        "Capital",
        ".hidden/in",
    ]
    .iter()
    .enumerate()
    {
        fs::write(root.join(file), vec![b'x'; at * 1000]).unwrap();
    }
    symlink("a", root.join("link")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    fifo(root.join("pipe"));
}

#[test]
fn names_come_as_from_the_real_ls() {
    let dir = directory();
    tree(dir.path());
    let root = word(dir.path());
    for words in [&[][..], &["-R"], &["-a", "-R"]] {
        // Our -a leaves out `.` and `..`, as theirs does by another name.
        let theirs: Vec<_> = words
            .iter()
            .map(|word| if *word == "-a" { "-A" } else { word })
            .chain([root])
            .collect();
        let ours: Vec<_> = words.iter().copied().chain([root]).collect();
        assert_eq!(
            ls(&ours).done().text(),
            real_ls(&theirs).text(),
            "{words:?}"
        );
    }
    // Files first, then directories with their headings.
    let paths = ["b", "z", "a", "Capital"].map(|name| format!("{root}/{name}"));
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let ours = ls(&paths).done();
    let sections: Vec<_> = ours.text().split("\n\n").collect();
    assert_eq!(sections[0], format!("{root}/Capital\n{root}/z"));
    assert_eq!(sections[1], format!("{root}/b:\nbig"));
    // Without a path it is the current directory.
    let here = run(nowait(["ls"]).current_dir(dir.path())).done();
    assert_eq!(here.text(), ls(&[root]).text());
    assert!(!here.text().contains(".dot"));
    // A link that is named is followed.
    assert_eq!(ls(&[&format!("{root}/link")]).done().text(), "deep\nx\n");
}

#[test]
fn the_long_form_says_what_the_real_ls_says() {
    let dir = directory();
    tree(dir.path());
    let root = dir.path();
    let mode = |name: &str, mode| {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("z", 0o4755);
    mode("Capital", 0o2640);
    mode("b", 0o1777);
    std::os::unix::fs::chown(root.join("z"), Some(12_345_678), Some(1)).unwrap();
    fs::hard_link(root.join("z"), root.join("z again")).unwrap();
    let words = |said: &Said| -> Vec<Vec<String>> {
        let lines = said
            .text()
            .lines()
            .filter(|line| !line.starts_with("total"));
        lines
            .map(|line| line.split_whitespace().map(String::from).collect())
            .collect()
    };
    for zone in ["UTC", "Asia/Kathmandu"] {
        let mut ours = nowait(["ls", "-l", word(root), "/dev/null"]);
        let ours = run(ours.env("TZ", zone)).done();
        let mut theirs = Command::new("ls");
        theirs.args(["-l", "--time-style=long-iso", word(root), "/dev/null"]);
        let theirs = run(theirs.env("TZ", zone).env("LC_ALL", "C"));
        assert_eq!(words(&ours), words(&theirs), "{zone}");
    }
    // A link that is named is shown itself.
    let link = ls(&["-l", word(&root.join("link"))]).done();
    assert!(link.text().trim_end().ends_with("link -> a"), "{link:?}");
}

#[test]
fn the_largest_and_the_newest_come_first() {
    let dir = directory();
    for i in 0..300u64 {
        let path = dir.path().join(format!("f{i}"));
        let file = File::create(&path).unwrap();
        file.set_len(i * 7 % 50).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(i * 11 % 70);
        file.set_modified(time).unwrap();
    }
    for (ours, theirs) in [("size", "-S"), ("mtime", "-t")] {
        let ours = ls(&["--sort", ours, word(dir.path())]).done();
        assert_eq!(ours.text(), real_ls(&[theirs, word(dir.path())]).text());
    }
    let unsorted = ls(&["--sort", "none", word(dir.path())]).done();
    let names = |said: &Said| {
        said.text()
            .lines()
            .map(String::from)
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(names(&unsorted), names(&real_ls(&[word(dir.path())])));
}

#[test]
fn a_tree_as_it_is_found_has_every_path_once() {
    for filesystem in [
        Filesystem::Ext4,
        Filesystem::Xfs,
        Filesystem::Btrfs,
        Filesystem::Tmpfs,
        Filesystem::Overlay,
    ] {
        let mount = mounted!(filesystem);
        tree(mount.path());
        for i in 0..3000 {
            touch(&mount.path().join(format!("b/f{i}")));
        }
        let root = word(mount.path());
        let paths = |said: Said| {
            let paths: Vec<_> = said.out.split(|b| *b == 0).map(<[u8]>::to_vec).collect();
            let unique: BTreeSet<_> = paths.iter().cloned().collect();
            assert_eq!(paths.len(), unique.len());
            unique
        };
        let found = run(Command::new("find").args([root, "-mindepth", "1", "-print0"]));
        let all = ls(&["-R", "-a", "--sort", "none", "-0", root]).done();
        let expected = paths(found);
        assert_eq!(paths(all), expected, "{filesystem:?}");
        // What is hidden hides what is below it.
        let shown = paths(ls(&["-R", "--sort", "none", "-0", root]).done());
        let visible = |path: &&Vec<u8>| !String::from_utf8_lossy(path).contains("/.");
        assert!(
            shown.iter().eq(expected.iter().filter(visible)),
            "{filesystem:?}"
        );
        let sorted = paths(ls(&["-R", "-0", root]).done());
        assert_eq!(sorted, shown);
        // Lines are whole paths as well.
        let lines = ls(&["-R", "--sort", "none", root]).done();
        assert_eq!(lines.text().lines().count(), shown.len() - 1);
    }
}

#[test]
fn names_of_any_bytes_keep_them_and_their_line() {
    for filesystem in [
        Filesystem::Ext4,
        Filesystem::Xfs,
        Filesystem::Btrfs,
        Filesystem::Tmpfs,
        Filesystem::Overlay,
    ] {
        let mount = mounted!(filesystem);
        let dir = mount.path().join("d");
        fs::create_dir(&dir).unwrap();
        // 255 bytes each; between them every byte that a name can have.
        let any = (1..=255u8).filter(|byte| *byte != b'/');
        let every: Vec<u8> = any.chain([b'!']).collect();
        let names = [
            every.clone(),
            vec![b'\n'; 255],
            vec![0xff; 255],
            vec![b'-'; 255],
        ];
        for name in &names {
            touch(&dir.join(OsStr::from_bytes(name)));
        }
        let expected: BTreeSet<_> = names.iter().cloned().collect();
        let root = word(&dir);
        let raw = ls(&["-0", root]).done();
        let raw: BTreeSet<_> = raw
            .out
            .split_inclusive(|b| *b == 0)
            .map(|path| {
                let name = path.strip_prefix(format!("{root}/").as_bytes()).unwrap();
                name.strip_suffix(b"\0").unwrap().to_vec()
            })
            .collect();
        assert_eq!(raw, expected, "{filesystem:?}");
        for words in [&["-l"][..], &[], &["-R", "--sort", "none"]] {
            let said = ls(&[words, &[root]].concat()).done();
            let lines: Vec<_> = said.text().lines().collect();
            assert_eq!(lines.len(), 4, "{said:?}");
            let tame = |c: char| c == '\n' || !c.is_control();
            assert!(said.text().chars().all(tame), "{said:?}");
        }
        let json = ls(&["--json", root]).done().json();
        let told: BTreeSet<_> = json["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| {
                let bytes = match entry["path_hex"].as_str() {
                    Some(hex) => unhex(hex),
                    None => entry["path"].as_str().unwrap().as_bytes().to_vec(),
                };
                bytes[root.len() + 1..].to_vec()
            })
            .collect();
        assert_eq!(told, expected, "{filesystem:?}");
    }
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn programs_are_told_everything() {
    let dir = directory();
    tree(dir.path());
    let z = dir.path().join("z");
    fs::write(&z, "12345").unwrap();
    fs::set_permissions(&z, fs::Permissions::from_mode(0o1604)).unwrap();
    let json = ls(&["--json", word(dir.path())]).done().json();
    assert_eq!(json["ls"], 1);
    assert_eq!(json["total"]["failed"], 0);
    let entries = json["entries"].as_array().unwrap();
    assert_eq!(json["total"]["entries"], entries.len());
    let named = |name: &str| {
        let path = dir.path().join(name);
        entries.iter().find(|e| e["path"] == word(&path)).unwrap()
    };
    use std::os::unix::fs::MetadataExt;
    let stat = fs::metadata(&z).unwrap();
    let entry = named("z");
    assert_eq!(entry["type"], "file");
    assert_eq!(entry["mode"], "1604");
    assert_eq!(entry["size"], 5);
    assert_eq!(entry["inode"], stat.ino());
    assert_eq!(entry["links"], 1);
    assert_eq!(entry["uid"], stat.uid());
    assert_eq!(entry["owner"], "root");
    assert_eq!(entry["allocated"], stat.blocks() * 512);
    assert_eq!(entry["mtime"], stat.mtime());
    assert_eq!(entry["mtime_ns"], stat.mtime_nsec());
    assert!(entry.get("target").is_none());
    assert_eq!(named("dangling")["type"], "link");
    assert_eq!(named("dangling")["target"], "nowhere");
    assert_eq!(named("pipe")["type"], "fifo");
    assert_eq!(named("a")["type"], "directory");
}

#[test]
fn extended_attributes_are_shown() {
    let mount = mounted!(Filesystem::Ext4);
    let path = mount.path().join("file");
    touch(&path);
    touch(&mount.path().join("plain"));
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&path, "user.key", b"a\nvalue", none).unwrap();
    rustix::fs::setxattr(&path, "user.raw", b"\xff\0", none).unwrap();
    let (file, dir) = (word(&path), word(mount.path()));
    for words in [
        &["--xattr", dir][..],
        &["--xattr", file],
        &["--xattr", "-l", dir],
    ] {
        let said = ls(words).done();
        let lines: Vec<_> = said.text().lines().collect();
        let at = lines
            .iter()
            .position(|line| line.ends_with("file"))
            .unwrap();
        let mut attributes = [lines[at + 1], lines[at + 2]];
        attributes.sort_unstable();
        assert_eq!(
            attributes,
            [r"	user.key=$'a\nvalue'", r"	user.raw=$'\377\000'"]
        );
    }
    let json = ls(&["--xattr", "--json", file]).done().json();
    let attributes = json["entries"][0]["xattrs"].as_array().unwrap();
    let named = |name: &str| attributes.iter().find(|a| a["name"] == name).unwrap();
    assert_eq!(named("user.key")["value"], "a\nvalue");
    assert_eq!(named("user.raw")["value_hex"], "ff00");
    assert!(named("user.key").get("value_hex").is_none());
}

#[test]
fn what_cannot_be_listed_is_remarked_on_and_the_rest_is_done() {
    let dir = open_directory();
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    // Its names may be read, and nothing be asked about them.
    let blind = dir.path().join("blind");
    fs::create_dir(&blind).unwrap();
    touch(&blind.join("unseen"));
    touch(&dir.path().join("seen"));
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(&blind, fs::Permissions::from_mode(0o744)).unwrap();
    let root = word(dir.path());
    for words in [
        &["ls", "-R", "-l"][..],
        &["ls", "-R", "-l", "--sort", "none"],
    ] {
        let missing = "/no/such\nfile";
        let (mut command, _copy) = as_nobody([words, &[missing, root]].concat());
        let said = run(&mut command).in_part();
        assert!(said.text().contains("seen"), "{said:?}");
        let unknown = said.text().lines().find(|line| line.ends_with("unseen"));
        let cells: Vec<_> = unknown.unwrap().split_whitespace().take(6).collect();
        assert_eq!(cells, ["-?????????", "?", "?", "?", "?", "?"]);
        let remarks: Vec<_> = said.err.lines().collect();
        assert_eq!(remarks.len(), 3, "{said:?}");
        for (of, why) in [
            (r"$'/no/such\nfile'", "No such file"),
            ("closed", "Permission denied"),
            ("blind/unseen", "Permission denied"),
        ] {
            let said = |line: &&str| line.contains(&format!("{of}: {why}"));
            assert!(remarks.iter().any(said), "{of}: {remarks:?}");
        }
    }
    assert_eq!(ls(&["--sort", "colour"]).code, Some(2));
    assert_eq!(ls(&["-0", "--json"]).code, Some(2));
}

#[test]
fn an_inode_that_cannot_be_read_costs_its_own_line_only() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let cold = TestMount::filled(&disk, Filesystem::Ext4, |at| {
        fs::create_dir(at.join("d")).unwrap();
        (0..3_000).for_each(|i| touch(&at.join(format!("d/f{i:04}"))));
    })
    .unwrap();
    let dir = cold.path().join("d");
    let bad = cold.inode(dir.join("f1500")).unwrap();
    for words in [&[][..], &["--sort", "none"], &["-R", "--sort", "none"]] {
        cold.remount().unwrap();
        let fault = disk.inject(Fault::eio(bad.clone()).reads_only());
        let said = ls(&[words, &["-l", word(&dir)]].concat()).in_part();
        disk.release(fault);
        let lines: Vec<_> = said
            .text()
            .lines()
            .filter(|line| line.contains("f"))
            .collect();
        let failed = lines.iter().filter(|line| line.starts_with("-?????????"));
        let failed = failed.count();
        assert!(
            (1..=16).contains(&failed),
            "an inode block has 16: {failed}"
        );
        assert!(
            lines
                .iter()
                .filter(|line| line.ends_with('0') || line.contains("f1"))
                .count()
                > 300
        );
        assert_eq!(said.err.matches("Input/output error").count(), failed);
        let names = lines.iter().filter(|l| !l.ends_with(':')).count();
        assert_eq!(names, 3_000, "{words:?}");
    }
}

#[test]
fn thirty_two_descriptors_are_enough() {
    let dir = directory();
    for i in 0..200 {
        let below = dir.path().join(format!("d{i}/e/f"));
        fs::create_dir_all(&below).unwrap();
        touch(&below.join("file"));
    }
    for words in [&["-R"][..], &["-R", "--sort", "none"]] {
        let mut command = nowait([&["ls"], words, &["--json", word(dir.path())]].concat());
        let said = run(limited(&mut command, 32)).done();
        assert_eq!(said.json()["total"]["entries"], 800, "{words:?}");
    }
}

#[test]
fn directories_may_vanish_meanwhile() {
    let dir = directory();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                for i in 0..200 {
                    let sub = dir.path().join(format!("{}", i % 10));
                    let _ = fs::create_dir(&sub);
                    let _ = fs::write(sub.join(format!("{i}")), "x");
                }
                for i in 0..10 {
                    let _ = fs::remove_dir_all(dir.path().join(format!("{i}")));
                }
            }
        });
        let runs: Vec<_> = (0..30)
            .map(|turn| {
                let sort = if turn % 2 == 0 { "name" } else { "none" };
                ls(&["-R", "-l", "--sort", sort, word(dir.path())])
            })
            .collect();
        // Before anything is asserted: the other thread waits for it.
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        for said in runs {
            assert_eq!(said.code, Some(0), "{said:?}");
            assert!(
                said.err.lines().all(|line| line.contains("vanished")),
                "{said:?}"
            );
        }
    });
}

#[test]
fn a_filesystem_that_lies_is_not_believed() {
    slowdisk::require!(slowdisk::available());
    let lie = |name: &str, at: u64, listed, actual| ServedEntry {
        name: name.into(),
        listed: (100 + at, listed),
        next: at,
        actual: (10 + at, actual),
    };
    let at = ServedDirectory::new(vec![
        lie(
            "called a directory",
            1,
            FileType::Directory,
            FileType::RegularFile,
        ),
        lie(
            "called a file",
            2,
            FileType::RegularFile,
            FileType::Directory,
        ),
    ])
    .unwrap();
    let said = ls(&["-l", word(at.path())]).done();
    let starts = |start: &str, name: &str| {
        said.text()
            .lines()
            .any(|line| line.starts_with(start) && line.ends_with(name))
    };
    assert!(
        starts("-", "called a directory") && starts("d", "called a file"),
        "{said:?}"
    );
    // Every directory of it is the same, which the kernel does not let pass.
    for sort in ["name", "none"] {
        let said = ls(&["-R", "-l", "--sort", sort, word(at.path())]).in_part();
        assert!(said.err.contains("Too many levels"), "{said:?}");
        assert!(said.text().lines().count() < 20, "{said:?}");
    }
}

#[test]
fn a_directory_within_itself_is_not_entered() {
    let mount = mounted!(Filesystem::Ext4);
    let inner = mount.path().join("a/inner");
    fs::create_dir_all(&inner).unwrap();
    touch(&mount.path().join("a/file"));
    let _bound = Bound::new(&mount.path().join("a"), &inner);
    for sort in ["name", "none"] {
        let said = ls(&["-R", "--sort", sort, word(mount.path())]).in_part();
        assert!(
            said.err.contains("inner: is one of its own ancestors"),
            "{said:?}"
        );
        assert_eq!(said.text().matches("file").count(), 1, "{said:?}");
    }
}

#[test]
fn a_directory_that_leads_back_is_ended() {
    slowdisk::require!(slowdisk::available());
    let entry = |at: u64, next| ServedEntry {
        name: format!("name{at}"),
        listed: (10 + at, FileType::RegularFile),
        next,
        actual: (10 + at, FileType::RegularFile),
    };
    let mut entries: Vec<_> = (0..2_000).map(|at| entry(at, at + 1)).collect();
    entries[1_999].next = 700;
    let at = ServedDirectory::new(entries).unwrap();
    for words in [&[][..], &["--sort", "none"], &["-R", "--sort", "none"]] {
        let said = ls(&[words, &[word(at.path())]].concat()).in_part();
        assert!(
            said.err.contains("the same entries again and again"),
            "{said:?}"
        );
        assert!(said.text().lines().count() >= 2_000);
    }
}

#[test]
fn a_terminal_gets_columns_and_colours_unless_they_are_unwanted() {
    let dir = directory();
    fs::create_dir(dir.path().join("dir")).unwrap();
    for i in 0..12 {
        touch(&dir.path().join(format!("file{i:02}.c")));
    }
    touch(&dir.path().join("bell\x07"));
    let shown = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = nowait(["ls"].iter().chain(words));
        command
            .arg(dir.path())
            .env_remove("LS_COLORS")
            .env_remove("NO_COLOR");
        command.envs(variables.iter().copied());
        on_a_terminal(&mut command)
    };
    let plain = shown(&[], &[("NO_COLOR", "1")]);
    assert!(
        !plain.contains('\x1b') && !plain.contains('\x07'),
        "{plain}"
    );
    assert!(plain.contains(r"$'bell\007'"), "{plain}");
    assert_eq!(plain.lines().count(), 5, "{plain}");
    assert!(plain.lines().all(|line| line.len() <= 40), "{plain}");
    let first: Vec<_> = plain
        .lines()
        .map(|l| l.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(
        first[1..],
        ["dir", "file00.c", "file01.c", "file02.c"],
        "from top to bottom"
    );
    let coloured = shown(&[], &[("LS_COLORS", "di=35:*.c=32")]);
    assert!(coloured.contains("\x1b[35mdir\x1b[0m"), "{coloured}");
    assert!(coloured.contains("\x1b[32mfile00.c\x1b[0m"), "{coloured}");
    assert_eq!(
        coloured.lines().count(),
        5,
        "colours have no width: {coloured}"
    );
    // What was asked for is shown as it is in a pipe.
    let nul = shown(&["-0"], &[]);
    assert!(
        nul.contains("bell\x07\0") && !nul.contains('\x1b'),
        "{nul:?}"
    );
}
