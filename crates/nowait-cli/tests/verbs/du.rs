//! Tests of `nowait du`: it reports the same bytes as du(1).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::program::{
    Bound, Said, as_nobody, directory, fifo, limited, nowait, on_a_terminal, open_directory, run,
    while_files_change, word,
};
use slowdisk::{Fault, FileType, Filesystem, ServedDirectory, ServedEntry, SlowDisk, TestMount};

const ALL: [Filesystem; 5] = [
    Filesystem::Ext4,
    Filesystem::Xfs,
    Filesystem::Btrfs,
    Filesystem::Tmpfs,
    Filesystem::Overlay,
];

fn du(words: &[&str]) -> Said {
    run(&mut nowait(["du"].iter().chain(words)))
}

fn real_du(words: &[&str]) -> Said {
    run(Command::new("du").args(words).env("LC_ALL", "C"))
}

/// The lines, sorted.
fn lines(said: &Said) -> BTreeSet<String> {
    let lines: Vec<_> = said.text().lines().map(String::from).collect();
    let unique: BTreeSet<_> = lines.iter().cloned().collect();
    assert_eq!(lines.len(), unique.len(), "no line comes twice: {said:?}");
    unique
}

/// Checks that both programs report the same, and that every directory follows its contents.
fn assert_same(ours: &[&str], theirs: &[&str]) {
    let (said, real) = (du(ours).done(), real_du(theirs));
    assert_eq!(real.code, Some(0), "{real:?}");
    assert_eq!(lines(&said), lines(&real), "{ours:?}");
    assert_outwards(&said);
}

/// Checks that every directory follows its contents.
fn assert_outwards(said: &Said) {
    let mut shown = BTreeSet::new();
    for line in said.text().lines() {
        let path = Path::new(line.split('\t').nth(1).unwrap());
        let mut above = path.ancestors().skip(1);
        assert!(
            !above.any(|above| shown.contains(above)),
            "{path:?} came too late"
        );
        shown.insert(path);
    }
}

/// Returns true if du(1) counts the sizes of directories as apparent sizes (before coreutils 9.2).
fn directories_are_apparent() -> bool {
    let dir = directory();
    real_du(&["-b", word(dir.path())]).text() != format!("0\t{}\n", word(dir.path()))
}

/// Makes files of all types and sizes, with holes, several names, links, and empty directories.
fn tree(root: &Path) {
    for at in 0..30 {
        let dir = root.join(format!("d{}/e{at}/f", at % 4));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("file"), vec![b'x'; at * 1777]).unwrap();
        fs::hard_link(dir.join("file"), dir.join("another name")).unwrap();
        let sparse = File::create(dir.join("sparse")).unwrap();
        sparse.set_len(at as u64 * 100_000_000).unwrap();
        std::os::unix::fs::FileExt::write_at(&sparse, b"end", at as u64 * 50_000_000).unwrap();
        symlink("/usr", dir.join("link")).unwrap();
        fs::create_dir_all(dir.join("empty/within")).unwrap();
    }
    fifo(root.join("d0/pipe"));
    fs::create_dir(root.join("big")).unwrap();
    (0..3000).for_each(|i| drop(File::create(root.join(format!("big/f{i}"))).unwrap()));
}

#[test]
fn every_directory_has_the_size_that_du_reports() {
    for filesystem in ALL {
        let mount = mounted!(filesystem);
        tree(mount.path());
        // The number of blocks may change until they are allocated.
        if filesystem != Filesystem::Overlay {
            mount.sync().unwrap();
        }
        let root = word(mount.path());
        assert_same(&[root], &[root]);
        assert_same(&["-a", root], &["-a", root]);
        for depth in ["0", "1", "2", "9"] {
            assert_same(&["-d", depth, root], &["-d", depth, root]);
            let words = ["-a", "--max-depth", depth, root];
            assert_same(&words, &words);
        }
        for words in [
            &["-h"][..],
            &["-ah"],
            &["-m", "-k"],
            &["-km"],
            &["-s", "-c"],
            &["-s", "-h", "--total"],
            &["--time", "-a"],
            &["--time=ctime"],
            &["--time=use", "-s", "-c"],
            &["--exclude=e1*", "-a"],
            &["--exclude", "d1/e1", "--exclude=*name"],
            &["-a", "--exclude=*/f"],
            &["--exclude", "sp[a-q]rs?", "-ax"],
        ] {
            let words = [words, &[root]].concat();
            assert_same(&words, &words);
        }
        if directories_are_apparent() {
            for words in [
                &["-b"][..],
                &["-ab"],
                &["--apparent-size"],
                &["-h", "--apparent-size", "-a"],
            ] {
                let words = [words, &[root]].concat();
                assert_same(&words, &words);
            }
        } else {
            slowdisk::skip_or_fail("du of coreutils before 9.2");
        }
    }
}

#[test]
fn paths_that_overlap_count_once() {
    let dir = directory();
    tree(dir.path());
    let [root, d0, e0, file, link] = ["", "d0", "d0/e0", "d0/e0/f/file", "d0/e0/f/link"]
        .map(|below| dir.path().join(below).to_str().unwrap().to_owned());
    let slash = format!("{d0}/");
    let (slashes, dot) = (format!("{d0}///"), format!("{d0}/."));
    let pipe = format!("{d0}/pipe");
    for paths in [
        &[&d0, &root][..],
        &[&root, &d0],
        &[&e0, &d0, &root],
        &[&root, &root],
        &[&file, &root],
        &[&root, &file],
        &[&pipe, &root],
        &[&root, &pipe],
        &[&pipe, &pipe],
        &[&link],
        &[&slash, &e0],
        &[&slashes],
        &[&dot, &e0],
    ] {
        for words in [&[][..], &["-a"]] {
            let words: Vec<_> = words
                .iter()
                .copied()
                .chain(paths.iter().map(|p| p.as_str()))
                .collect();
            assert_same(&words, &words);
        }
    }
    let here = run(nowait(["du"]).current_dir(dir.path())).done();
    let real = run(Command::new("du").current_dir(dir.path()));
    assert_eq!(lines(&here), lines(&real));
}

#[test]
fn a_file_with_names_in_several_directories_counts_in_one_of_them() {
    let dir = directory();
    for name in ["a", "b", "c"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let first = dir.path().join("a/file");
    fs::write(&first, vec![1; 100_000]).unwrap();
    for name in ["b/file", "c/file"] {
        fs::hard_link(&first, dir.path().join(name)).unwrap();
    }
    let root = word(dir.path());
    let said = du(&["--json", root]).done().json();
    assert_eq!(said["du"], 1);
    let total = &said["total"];
    assert_eq!(
        (&total["files"], &total["other_names"]),
        (&1.into(), &2.into())
    );
    assert_eq!(total["directories"], 4);
    assert_same(&["-s", root], &["-s", root]);
    let entries = said["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 4);
    assert_eq!(entries[3]["path"], root);
    assert_eq!(entries[3]["bytes"], total["bytes"]);
}

#[test]
fn many_directories_follow_their_contents() {
    let mount = mounted!(Filesystem::Tmpfs);
    for at in 0..12_000 {
        let dir = mount
            .path()
            .join(format!("d{}/e{}/f{at}/g", at % 7, at % 61));
        fs::create_dir_all(&dir).unwrap();
        if at % 3 == 0 {
            fs::write(dir.join("file"), vec![1; at]).unwrap();
        }
    }
    let root = word(mount.path());
    let (said, real) = (du(&[root]).done(), real_du(&[root]));
    assert_eq!(lines(&said), lines(&real));
    assert_outwards(&said);
}

#[test]
fn unreadable_directories_count_with_their_own_size() {
    let dir = open_directory();
    tree(dir.path());
    for (name, mode) in [("d1", 0o700), ("d2/e2", 0o744), ("d3/e3/f", 0o311)] {
        let path = dir.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let root = word(dir.path());
    let closed = format!("{root}/d1");
    for words in [&[root][..], &["-a", root], &[&closed]] {
        let (mut command, _copy) = as_nobody([&["du"], words].concat());
        let said = run(&mut command).in_part();
        use std::os::unix::process::CommandExt;
        let mut real = Command::new("du");
        real.args(words).uid(65534).gid(65534).current_dir("/");
        let real = run(&mut real);
        assert_eq!(real.code, Some(1), "{real:?}");
        assert_eq!(lines(&said), lines(&real), "{words:?}");
        // An entry whose metadata query and open both fail is reported once.
        let denied = |said: &Said| said.err.matches("Permission denied").count();
        assert_eq!(denied(&said), denied(&real), "{said:?} {real:?}");
    }
    let said = du(&["/no/such\nfile", root]).in_part();
    assert!(
        said.err.contains(r"$'/no/such\nfile': No such file"),
        "{said:?}"
    );
    assert_eq!(lines(&said), lines(&real_du(&[root])));
}

#[test]
fn other_filesystems_are_skipped_with_x() {
    let mount = mounted!(Filesystem::Ext4);
    tree(mount.path());
    let other = mount.path().join("big/other");
    fs::create_dir(&other).unwrap();
    mount.sync().unwrap();
    let memory = mounted!(Filesystem::Tmpfs);
    tree(memory.path());
    let _bound = Bound::new(memory.path(), &other);
    let root = word(mount.path());
    assert_same(&["-x", root], &["-x", root]);
    assert_same(&[root], &[root]);
}

#[test]
fn a_bind_mount_of_an_ancestor_counts_once() {
    let mount = mounted!(Filesystem::Ext4);
    let inner = mount.path().join("a/b/inner");
    fs::create_dir_all(&inner).unwrap();
    fs::write(mount.path().join("a/file"), vec![1; 100_000]).unwrap();
    fs::write(mount.path().join("a/b/file"), vec![1; 100_000]).unwrap();
    mount.sync().unwrap();
    let [root, a, b] = ["", "a", "a/b"].map(|at| mount.path().join(at));
    for bound in [&root, &a, &b] {
        let _bound = Bound::new(bound, &inner);
        for words in [&[][..], &["-a"], &["-s"], &["-c"], &["-x"], &["-d", "2"]] {
            for paths in [&[word(&root)][..], &[word(&a), word(&root)]] {
                let words = [words, paths].concat();
                assert_same(&words, &words);
            }
        }
        let total = &du(&["--json", word(&root)]).done().json()["total"];
        // The last two: lost+found, and a/b.
        assert_eq!(total["directories"], 2 + 2, "{bound:?}");
        assert_eq!(total["files"], 2, "{bound:?}");
    }
}

#[test]
fn sums_beyond_64_bits_are_infinite() {
    let mount = mounted!(Filesystem::Tmpfs);
    for name in ["a/1", "a/2", "b/3"] {
        let path = mount.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(path)
            .unwrap()
            .set_len(i64::MAX as u64)
            .unwrap();
    }
    let root = word(mount.path());
    for words in [
        &["-b"][..],
        &["-ab"],
        &["-bh"],
        &["-bm"],
        &["-cb"],
        &["--apparent-size"],
    ] {
        let words = [words, &[root]].concat();
        let said = du(&words);
        assert_eq!(lines(&said), lines(&real_du(&words)), "{words:?}");
        assert!(
            said.text().contains(&format!("Infinity\t{root}\n")),
            "{said:?}"
        );
    }
    let said = du(&["-b", "--json", root]).done().json();
    assert_eq!(said["total"]["bytes"], u64::MAX);
    assert_eq!(said["entries"][2]["bytes"], u64::MAX);
}

#[test]
fn files_may_vanish_meanwhile() {
    let dir = directory();
    fs::write(dir.path().join("stays"), vec![1; 50_000]).unwrap();
    let least = fs::metadata(dir.path().join("stays")).unwrap().blocks() * 512;
    let runs = || (0..40).map(|_| du(&["-a", word(dir.path())])).collect();
    let runs: Vec<_> = while_files_change(dir.path(), runs);
    for said in runs {
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(
            said.err.lines().all(|line| line.contains("vanished")),
            "{said:?}"
        );
        let last = said.text().lines().last().unwrap();
        let (bytes, path) = last.split_once('\t').unwrap();
        assert_eq!(path, word(dir.path()));
        assert!(bytes.parse::<u64>().unwrap() << 10 > least);
    }
}

#[test]
fn names_of_any_bytes_are_printed_unchanged() {
    let dir = directory();
    let names = [vec![b'\n'; 255], vec![0xff; 255], b"tab\tbell\x07".to_vec()];
    for name in &names {
        fs::create_dir(dir.path().join(OsStr::from_bytes(name))).unwrap();
    }
    let root = word(dir.path());
    for words in [&["-0", root][..], &["-0", "--time", root], &[root]] {
        let (ours, theirs) = (du(words).done(), real_du(words));
        let lines = |said: &Said| -> BTreeSet<Vec<u8>> {
            said.out
                .split(|&byte| byte == 0)
                .map(<[u8]>::to_vec)
                .collect()
        };
        match words.len() {
            1 => assert_eq!(ours.out.len(), theirs.out.len()),
            _ => assert_eq!(lines(&ours), lines(&theirs)),
        }
    }
    let shown = on_a_terminal(&mut nowait(["du", root]));
    assert_eq!(shown.lines().count(), 4, "{shown}");
    let tame = |c: char| c == '\n' || c == '\t' || !c.is_control();
    assert!(shown.chars().all(tame), "{shown}");
    let json = du(&["--json", word(dir.path())]).done().json();
    let entries = json["entries"].as_array().unwrap();
    let hex = entries
        .iter()
        .filter_map(|entry| entry["path_hex"].as_str());
    let hex: Vec<_> = hex.collect();
    assert_eq!(hex.len(), 1);
    assert!(hex[0].ends_with(&"ff".repeat(255)));
}

#[test]
fn an_unreadable_inode_is_reported_and_the_rest_is_counted() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let cold = TestMount::filled(&disk, Filesystem::Ext4, |at| {
        fs::create_dir(at.join("d")).unwrap();
        (0..3_000).for_each(|i| drop(File::create(at.join(format!("d/f{i:04}"))).unwrap()));
    })
    .unwrap();
    let dir = cold.path().join("d");
    let bad = cold.inode(dir.join("f1500")).unwrap();
    cold.remount().unwrap();
    let fault = disk.inject(Fault::eio(bad).reads_only());
    let said = du(&["--json", word(&dir)]).in_part();
    disk.release(fault);
    let failed = said.err.matches("Input/output error").count() as u64;
    assert!(
        (1..=16).contains(&failed),
        "an inode block has 16: {failed}"
    );
    assert_eq!(said.json()["total"]["failed"], failed);
    assert_eq!(said.json()["total"]["files"], 3_000 - failed);
}

#[test]
fn thirty_two_descriptors_are_enough() {
    let dir = directory();
    for i in 0..300 {
        let below = dir.path().join(format!("d{i}/e/f"));
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join("file"), "x").unwrap();
    }
    let root = word(dir.path());
    let said = run(limited(&mut nowait(["du", root]), 32)).done();
    assert_eq!(lines(&said), lines(&real_du(&[root])));
}

#[test]
fn inconsistent_directory_entries_are_reported() {
    slowdisk::require!(slowdisk::available());
    let entry = |at: u64, listed, actual, next| ServedEntry {
        name: format!("name{at}"),
        listed: (100 + at, listed),
        next,
        actual: (10 + at, actual),
    };
    let (file, directory) = (FileType::RegularFile, FileType::Directory);
    let at = ServedDirectory::new(vec![
        entry(1, directory, file, 1),
        entry(2, file, directory, 2),
    ])
    .unwrap();
    let said = du(&["--json", word(at.path())]).in_part();
    assert_eq!(said.json()["total"]["files"], 2, "one in each directory");
    assert!(said.err.contains("Too many levels"), "{said:?}");

    let mut round: Vec<_> = (0..2_000).map(|at| entry(at, file, file, at + 1)).collect();
    round[1_999].next = 700;
    let at = ServedDirectory::new(round).unwrap();
    let said = du(&[word(at.path())]).in_part();
    assert!(
        said.err.contains("the same entries again and again"),
        "{said:?}"
    );
}

#[test]
fn wrong_usage_is_explained() {
    for (words, tip) in [
        (&["-s", "-a"][..], "cannot be used with"),
        (&["-s", "-d", "1"], "cannot be used with"),
        (&["-0", "--json"], "cannot be used with"),
        (&["--time=never"], "[possible values: mtime, atime, ctime]"),
        (&["-q"], "--help"),
    ] {
        let said = du(words);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(tip), "{said:?}");
    }
}
