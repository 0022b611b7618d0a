//! Tests of `nowait scan`, beside find(1).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use crate::program::{
    Bound, Said, as_nobody, directory, fifo, limited, nowait, on_a_terminal, open_directory, run,
    while_files_change, word,
};
use serde_json::Value;
use slowdisk::{Fault, FileType, Filesystem, ServedDirectory, ServedEntry, SlowDisk, TestMount};

const FILESYSTEMS: [Filesystem; 5] = [
    Filesystem::Ext4,
    Filesystem::Xfs,
    Filesystem::Btrfs,
    Filesystem::Tmpfs,
    Filesystem::Overlay,
];

fn scan(words: &[&str]) -> Said {
    run(&mut nowait(["scan"].iter().chain(words)))
}

fn touch(path: &Path) {
    File::create(path).unwrap();
}

/// The parts of an output that end with this byte.
fn parts(said: &Said, end: u8) -> BTreeSet<Vec<u8>> {
    let parts = said.out.split_inclusive(|&byte| byte == end);
    let parts: Vec<_> = parts
        .map(|part| {
            part.strip_suffix(&[end])
                .expect("the end of an entry")
                .to_vec()
        })
        .collect();
    let unique: BTreeSet<_> = parts.iter().cloned().collect();
    assert_eq!(parts.len(), unique.len(), "an entry is printed twice");
    unique
}

fn objects(said: &Said) -> Vec<Value> {
    let lines = said.text().lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A tree with files of all types, and modes, owners, sizes and times of many kinds.
fn tree(root: &Path) {
    for dir in ["a", "a/deep", "b", ".hidden"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    let files = [
        "z",
        "a/x",
        "a/deep/y",
        "b/big",
        ".dot",
        "with blank",
        ".hidden/in",
    ];
    for (at, file) in files.iter().enumerate() {
        let path = root.join(file);
        fs::write(&path, vec![b'x'; at * 1000]).unwrap();
        let mode = [0o644, 0o4755, 0o2640, 0o1777, 0, 0o600, 0o6644][at];
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let modified = UNIX_EPOCH + Duration::new(at as u64 * 400_000_000, at as u32 * 1001);
        File::options()
            .read(true)
            .open(&path)
            .unwrap()
            .set_modified(modified)
            .unwrap();
    }
    std::os::unix::fs::chown(root.join("z"), Some(12_345_678), Some(1)).unwrap();
    fs::hard_link(root.join("z"), root.join("z again")).unwrap();
    File::create(root.join("sparse"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    fs::set_permissions(root.join("b"), fs::Permissions::from_mode(0o1777)).unwrap();
    symlink("a", root.join("link")).unwrap();
    symlink("nowhere\n", root.join("dangling")).unwrap();
    fifo(root.join("pipe"));
    // bind(2) takes short paths only.
    let (socket, mode) = (root.join("socket"), rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        socket,
        rustix::fs::FileType::Socket,
        mode,
        0,
    )
    .unwrap();
}

#[test]
fn entries_are_those_of_find() {
    for filesystem in FILESYSTEMS {
        let mount = mounted!(filesystem);
        tree(mount.path());
        (0..3000).for_each(|i| touch(&mount.path().join(format!("b/f{i}"))));
        let root = word(mount.path());
        let find = |words: &[&str]| {
            let mut find = Command::new("find");
            let said = run(find
                .arg(root)
                .args(["-mindepth", "1"])
                .args(words)
                .arg("-print0"));
            assert_eq!(said.code, Some(0), "{said:?}");
            parts(&said, 0)
        };
        for (ours, theirs) in [
            (&[][..], &["-maxdepth", "1"][..]),
            (&["-r"], &[]),
            (&["--max-depth", "1"], &["-maxdepth", "1"]),
            (&["--max-depth", "2"], &["-maxdepth", "2"]),
            (&["-r", "--type", "f"], &["-type", "f"]),
            (&["-r", "--type", "d,l"], &["-type", "d,l"]),
            (&["-r", "--type", "p,s"], &["-type", "p,s"]),
            (&["-r", "--type", "b,c"], &["-type", "b,c"]),
        ] {
            let said = scan(&[ours, &["-0", root]].concat()).done();
            assert_eq!(parts(&said, 0), find(theirs), "{filesystem:?} {ours:?}");
        }
    }
}

#[test]
fn formats_mean_the_same_as_for_find() {
    for filesystem in FILESYSTEMS {
        let mount = mounted!(filesystem);
        tree(mount.path());
        let root = word(mount.path());
        let names = "%p|%f|%h|%H|%P|%d|%y|%l|%i";
        let stats = "%p|%s|%b|%k|%m|%M|%n|%u|%g|%U|%G|%D";
        let times = "%p|%t|%c|%T@|%C@|%T+|%TF|%TY|%Tm|%Td|%TH|%TM";
        let others = r"%-30f|%10s|%3d|%%|\t\\\101\x";
        for zone in ["UTC", "Asia/Kathmandu"] {
            for format in [names, stats, times, &others.replace(r"\x", r"\n")] {
                let mut find = Command::new("find");
                find.arg(root).args(["-mindepth", "1", "-printf"]);
                let theirs = run(find
                    .arg(format!("{format}\\0"))
                    .env("TZ", zone)
                    .env("LC_ALL", "C"));
                let mut ours = nowait(["scan", "-r", "-0", "--format", format, root]);
                let ours = run(ours.env("TZ", zone)).done();
                assert_eq!(
                    parts(&ours, 0),
                    parts(&theirs, 0),
                    "{filesystem:?} {format}"
                );
            }
        }
    }
    // The paths of files that are given themselves, and the forms of a start.
    let dir = directory();
    tree(dir.path());
    for start in [
        ".",
        "./",
        "./.",
        ".//",
        "a",
        "a/",
        "a//",
        "a/.",
        "a/./",
        "./a",
        "z",
        "a//x",
        "a/./x",
        "./dangling",
        "a/../b",
        "a/..",
    ] {
        let format = "%p|%f|%h|%P|%H|%d|%y|%s";
        // A directory itself is not printed.
        let at_least = if dir.path().join(start).is_dir() {
            "1"
        } else {
            "0"
        };
        let mut find = Command::new("find");
        find.arg(start).args(["-mindepth", at_least, "-printf"]);
        let theirs = run(find.arg(format!("{format}\\0")).current_dir(dir.path()));
        let mut ours = nowait(["scan", "-r", "-0", "--format", format, start]);
        let ours = run(ours.current_dir(dir.path())).done();
        assert_eq!(parts(&ours, 0), parts(&theirs, 0), "{start}");
    }
}

#[test]
fn flags_widths_and_precisions_mean_the_same_as_for_find() {
    let dir = directory();
    tree(dir.path());
    let letters = [
        "p", "f", "h", "H", "P", "d", "y", "s", "b", "k", "m", "M", "n", "u", "U", "g", "G", "i",
        "D", "l", "t", "T@", "CY",
    ];
    // find takes the flag 0 only after the others.
    let flags = (0..16).map(|set| {
        let all = ["-", "+", " ", "#"].into_iter().enumerate();
        let chosen = all.filter(|(at, _)| set >> at & 1 == 1);
        chosen.map(|(_, flag)| flag).collect::<String>()
    });
    let mut format = String::new();
    for flags in flags {
        for zero in ["", "0"] {
            for size in ["", "7", "30", ".0", ".3", "7.2", "3.5", "30.12", "9."] {
                for letter in letters {
                    format += &format!("%{flags}{zero}{size}{letter}|");
                }
            }
        }
    }
    let root = word(dir.path());
    let mut find = Command::new("find");
    find.args([root, "-mindepth", "1", "-printf"]);
    let theirs = run(find.arg(format!("{format}\\0")).env("LC_ALL", "C")).done();
    let ours = scan(&["-r", "-0", "--format", &format, root]).done();
    let (ours, theirs) = (parts(&ours, 0), parts(&theirs, 0));
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let cells = |line: &[u8]| {
            line.split(|&byte| byte == b'|')
                .map(<[u8]>::to_vec)
                .collect()
        };
        let (ours, theirs): (Vec<Vec<u8>>, Vec<Vec<u8>>) = (cells(ours), cells(theirs));
        for (at, directive) in format.split('|').enumerate() {
            let text = |cells: &[Vec<u8>]| String::from_utf8_lossy(&cells[at]).into_owned();
            assert_eq!(text(&ours), text(&theirs), "{directive}");
        }
    }
}

#[test]
fn fields_are_separated_by_tabs() {
    let dir = directory();
    tree(dir.path());
    let root = word(dir.path());
    let ours = scan(&[
        "-r",
        "--fields",
        "path,size,mode,links,inode,mtime,target",
        "-0",
        root,
    ])
    .done();
    let format = r"%p\t%s\t%m\t%n\t%i\t%T@\t%l";
    assert_eq!(
        parts(&ours, 0),
        parts(&scan(&["-r", "-0", "--format", format, root]).done(), 0)
    );
    let all = "path,name,dir,start,relative,depth,type,size,allocated,mode,links,user,group,uid,gid,inode,\
               device,target,mtime,atime,ctime,btime,xattrs";
    let said = scan(&["--fields", all, root, "--type", "f"]).done();
    let line = said
        .text()
        .lines()
        .find(|line| line.contains("with blank"))
        .unwrap();
    let metadata = fs::metadata(dir.path().join("with blank")).unwrap();
    let cells: Vec<_> = line.split('\t').collect();
    assert_eq!(cells.len(), 23, "{line}");
    assert_eq!(cells[8], (metadata.blocks() * 512).to_string());
    assert_eq!(cells[11..13], ["root", "root"]);
    assert!(cells[21].parse::<f64>().unwrap() > 1.6e9, "{line}");
}

#[test]
fn names_of_any_bytes_are_printed_unchanged() {
    for filesystem in FILESYSTEMS {
        let mount = mounted!(filesystem);
        let dir = mount.path().join("d");
        fs::create_dir(&dir).unwrap();
        // Names of 255 bytes. Together they contain every byte that a name can have.
        let any = (1..=255u8).filter(|byte| *byte != b'/');
        let every: Vec<u8> = any.chain([b'!']).collect();
        let names = [every, vec![b'\n'; 255], vec![0xff; 255], vec![b'-'; 255]];
        for name in &names {
            touch(&dir.join(OsStr::from_bytes(name)));
        }
        let expected: BTreeSet<_> = names.iter().cloned().collect();
        let root = word(&dir);
        for words in [&["-0"][..], &["-0", "-r"]] {
            let below = |path: Vec<u8>| path[root.len() + 1..].to_vec();
            let said = scan(&[words, &[root]].concat()).done();
            let raw: BTreeSet<_> = parts(&said, 0).into_iter().map(below).collect();
            assert_eq!(raw, expected, "{filesystem:?}");
        }
        let json = objects(&scan(&["--json", root]).done());
        let bytes = |object: &Value| match object["path_hex"].as_str() {
            Some(hex) => unhex(hex)[root.len() + 1..].to_vec(),
            None => object["path"].as_str().unwrap().as_bytes()[root.len() + 1..].to_vec(),
        };
        assert_eq!(json.iter().map(bytes).collect::<BTreeSet<_>>(), expected);
    }
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn json_has_one_object_a_line() {
    let dir = directory();
    tree(dir.path());
    let said = scan(&["--json", "-r", word(dir.path())]).done();
    let objects = objects(&said);
    let named = |name: &str| {
        let path = dir.path().join(name);
        objects
            .iter()
            .find(|object| object["path"] == word(&path))
            .unwrap()
    };
    for name in ["z", "b/big", "sparse", "a", "pipe"] {
        let metadata = fs::symlink_metadata(dir.path().join(name)).unwrap();
        let object = named(name);
        let expected = serde_json::json!({
            "path": word(&dir.path().join(name)),
            "type": object["type"],
            "inode": metadata.ino(),
            "mode": format!("{:o}", metadata.mode() & 0o7777),
            "links": metadata.nlink(),
            "uid": metadata.uid(),
            "gid": metadata.gid(),
            "user": if name == "z" { Value::Null } else { "root".into() },
            "group": if name == "z" { "daemon" } else { "root" },
            "size": metadata.len(),
            "allocated": metadata.blocks() * 512,
            "mtime": metadata.mtime(),
            "mtime_ns": metadata.mtime_nsec(),
            "target": null,
        });
        assert_eq!(*object, expected);
    }
    assert_eq!(named("dangling")["type"], "symlink");
    assert_eq!(named("dangling")["target"], "nowhere\n");
    for (name, kind) in [
        ("pipe", "fifo"),
        ("socket", "socket"),
        ("a", "directory"),
        ("z", "file"),
    ] {
        assert_eq!(named(name)["type"], kind);
    }
    let null = scan(&["--json", "/dev/null"]).done();
    assert_eq!(null.json()["type"], "character");
    let fields = scan(&[
        "--json",
        "--fields",
        "size,name",
        word(&dir.path().join("z")),
    ])
    .done();
    assert_eq!(fields.text(), "{\"size\":0,\"name\":\"z\"}\n");
}

#[test]
fn extended_attributes_are_printed() {
    let mount = mounted!(Filesystem::Ext4);
    let path = mount.path().join("file");
    touch(&path);
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&path, "user.key", b"a\nvalue", none).unwrap();
    rustix::fs::setxattr(&path, "user.raw", b"\xff\0", none).unwrap();
    for start in [word(&path), word(mount.path())] {
        let said = scan(&["--xattr", "--type", "f", start]).done();
        let line = said.text().strip_suffix('\n').unwrap();
        let (shown, attributes) = line.split_once('\t').unwrap();
        assert_eq!(shown, word(&path));
        let mut attributes: Vec<_> = attributes.split(',').collect();
        attributes.sort_unstable();
        assert_eq!(
            attributes,
            [r"user.key=$'a\nvalue'", r"user.raw=$'\377\000'"]
        );
        let json = scan(&["--xattr", "--json", "--type", "f", start])
            .done()
            .json();
        let attributes = json["xattrs"].as_array().unwrap();
        let named = |name: &str| attributes.iter().find(|a| a["name"] == name).unwrap();
        assert_eq!(named("user.key")["value"], "a\nvalue");
        assert_eq!(named("user.raw")["value_hex"], "ff00");
        assert!(named("user.key").get("value_hex").is_none());
    }
}

#[test]
fn extended_attributes_are_those_of_a_link_and_not_of_its_target() {
    let mount = mounted!(Filesystem::Ext4);
    let (path, link) = (mount.path().join("file"), mount.path().join("link"));
    touch(&path);
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&path, "user.key", b"value", none).unwrap();
    for target in [path.as_path(), Path::new("nowhere")] {
        std::os::unix::fs::symlink(target, &link).unwrap();
        let given = scan(&["--xattr", "--type", "l", word(&link)]).done();
        let found = scan(&["--xattr", "--type", "l", word(mount.path())]).done();
        assert_eq!(given.text(), format!("{}\t\n", word(&link)));
        assert_eq!(given.text(), found.text());
        std::fs::remove_file(&link).unwrap();
    }
}

#[test]
fn other_filesystems_are_not_entered_with_x() {
    let dir = directory();
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    let mount = mounted!(Filesystem::Tmpfs);
    touch(&mount.path().join("beyond"));
    let _bound = Bound::new(mount.path(), &other);
    let root = word(dir.path());
    assert_eq!(scan(&["-r", root]).done().text().lines().count(), 2);
    let said = scan(&["-r", "-x", root]).done();
    assert_eq!(said.text(), format!("{root}/other\n"));
}

/// The maximum resident memory of a child in bytes, and the length of its output.
fn memory_of(words: &[&str]) -> (u64, u64) {
    let mut child = nowait(words).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let length = std::io::copy(&mut out, &mut std::io::sink()).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", child.id()));
    let peak = status.ok().and_then(|status| {
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    assert!(child.wait().unwrap().success());
    (peak.unwrap_or(0) << 10, length)
}

#[test]
fn memory_does_not_grow_with_the_directory() {
    let mount = mounted!(Filesystem::Tmpfs);
    let dir = mount.path().join("d");
    fs::create_dir(&dir).unwrap();
    (0..300_000).for_each(|i| touch(&dir.join(format!("a name of forty bytes, number {i:09}"))));
    for words in [&["scan", "--json"][..], &["scan", "-r", "--json"]] {
        let (peak, length) = memory_of(&[words, &[word(&dir)]].concat());
        assert!(length > 300_000 * 200, "{length}");
        assert!(peak < 64 << 20, "{peak} bytes");
    }
}

#[test]
fn failures_are_reported_and_the_rest_is_printed() {
    let dir = open_directory();
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    // The names in it may be listed, but not their metadata.
    let listed = dir.path().join("listed");
    fs::create_dir(&listed).unwrap();
    touch(&listed.join("unseen"));
    touch(&dir.path().join("seen"));
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(&listed, fs::Permissions::from_mode(0o744)).unwrap();
    let words = [
        "scan",
        "-r",
        "--format",
        "%f|%y|%s",
        "/no/such\nfile",
        word(dir.path()),
    ];
    let (mut command, _copy) = as_nobody(words);
    let said = run(&mut command).in_part();
    let lines: BTreeSet<_> = said.text().lines().collect();
    assert!(
        lines.contains("unseen|f|?") && lines.contains("seen|f|0"),
        "{said:?}"
    );
    let messages: Vec<_> = said.err.lines().collect();
    assert_eq!(messages.len(), 3, "{said:?}");
    for (of, why) in [
        (r"$'/no/such\nfile'", "No such file"),
        ("closed", "Permission denied"),
        ("listed/unseen", "Permission denied"),
    ] {
        let is = |line: &&str| line.contains(&format!("{of}: {why}"));
        assert!(messages.iter().any(is), "{of}: {messages:?}");
    }
}

#[test]
fn wrong_usage_is_explained() {
    for (words, tip) in [
        (&["--fields", "colour"][..], "the fields are path, name"),
        (&["--fields", ""], "the fields are"),
        (&["--format", "%Q"], "nowait scan --help"),
        (&["--type", "x"], "write f, d, l"),
        (&["-0", "--json"], "cannot be used with"),
        (&["--format", "%p", "--json"], "cannot be used with"),
        (&["--max-depth", "0"], "1.."),
        (&["-l"], "--help"),
    ] {
        let said = scan(words);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(tip), "{said:?}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_reported() {
    let dir = directory();
    (0..20_000).for_each(|i| touch(&dir.path().join(format!("f{i}"))));
    let mut command = nowait(["scan", "--json", word(dir.path())]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = command.stdout(full).output().unwrap();
    let said = Said::of(&output).in_part();
    assert!(
        said.err
            .contains("cannot write to standard output: No space left"),
        "{said:?}"
    );
    let shell = format!(
        "{} scan --json {} | head -n 1",
        env!("CARGO_BIN_EXE_nowait"),
        word(dir.path())
    );
    let said = run(Command::new("bash").args(["-o", "pipefail", "-c", &shell])).done();
    assert_eq!(said.text().lines().count(), 1);
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
    for words in [&[][..], &["-r"]] {
        cold.remount().unwrap();
        let fault = disk.inject(Fault::eio(bad.clone()).reads_only());
        let words = [words, &["--format", "%f %s", word(&dir)]].concat();
        let said = scan(&words).in_part();
        disk.release(fault);
        let lines: Vec<_> = said.text().lines().collect();
        assert_eq!(lines.len(), 3_000, "{words:?}");
        let failed = lines.iter().filter(|line| line.ends_with(" ?")).count();
        assert!(
            (1..=16).contains(&failed),
            "an inode block has 16: {failed}"
        );
        assert_eq!(said.err.matches("Input/output error").count(), failed);
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
    let mut command = nowait(["scan", "-r", "--json", word(dir.path())]);
    let said = run(limited(&mut command, 32)).done();
    assert_eq!(said.text().lines().count(), 800);
}

#[test]
fn directories_may_vanish_meanwhile() {
    let dir = directory();
    while_files_change(dir.path(), || {
        for _ in 0..30 {
            let said = scan(&["-r", "--json", word(dir.path())]);
            assert_eq!(said.code, Some(0), "{said:?}");
            assert!(
                said.err.lines().all(|line| line.contains("vanished")),
                "{said:?}"
            );
        }
    });
}

#[test]
fn wrong_types_of_a_filesystem_are_corrected_by_statx() {
    slowdisk::require!(slowdisk::available());
    let wrong = |name: &str, at: u64, listed, actual| ServedEntry {
        name: name.into(),
        listed: (100 + at, listed),
        next: at,
        actual: (10 + at, actual),
    };
    let at = ServedDirectory::new(vec![
        wrong(
            "called a directory",
            1,
            FileType::Directory,
            FileType::RegularFile,
        ),
        wrong(
            "called a file",
            2,
            FileType::RegularFile,
            FileType::Directory,
        ),
    ])
    .unwrap();
    let said = scan(&["--format", "%f %M", word(at.path())]).done();
    let has = |start: &str| said.text().lines().any(|line| line.starts_with(start));
    assert!(
        has("called a directory -") && has("called a file d"),
        "{said:?}"
    );
    // Each directory is the same one. The kernel returns ELOOP.
    let said = scan(&["-r", "--json", word(at.path())]).in_part();
    assert!(said.err.contains("Too many levels"), "{said:?}");
    assert!(said.text().lines().count() < 20, "{said:?}");
}

#[test]
fn a_directory_within_itself_is_not_entered() {
    let mount = mounted!(Filesystem::Ext4);
    let inner = mount.path().join("a/inner");
    fs::create_dir_all(&inner).unwrap();
    touch(&mount.path().join("a/file"));
    let _bound = Bound::new(&mount.path().join("a"), &inner);
    let said = scan(&["-r", word(mount.path())]).in_part();
    assert!(
        said.err.contains("inner: is one of its own ancestors"),
        "{said:?}"
    );
    assert_eq!(said.text().matches("file").count(), 1, "{said:?}");
}

#[test]
fn a_directory_that_repeats_its_entries_is_ended() {
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
    for words in [&[][..], &["-r"]] {
        let said = scan(&[words, &[word(at.path())]].concat()).in_part();
        assert!(
            said.err.contains("the same entries again and again"),
            "{said:?}"
        );
        assert!(said.text().lines().count() >= 2_000);
    }
}

#[test]
fn names_are_quoted_on_a_terminal_only() {
    let dir = directory();
    touch(&dir.path().join("bell\x07"));
    let shown = |words: &[&str]| {
        let mut command = nowait(["scan"].iter().chain(words));
        on_a_terminal(command.arg(dir.path()))
    };
    assert!(shown(&[]).contains(r"bell\007'"), "{}", shown(&[]));
    assert!(shown(&["-0"]).ends_with("bell\x07\0"));
    let piped = scan(&[word(dir.path())]).done();
    assert!(piped.text().ends_with("bell\x07\n"));
}
