//! All pairs of options of `du`, `scan` and `fincore`, in both orders, beside du(1), find(1) and fincore(1) of
//! util-linux: the same output, without regard to order and alignment. The intended differences are the cases
//! of these tests in which the programs are not compared. The manual pages list them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::program::{Bound, MIB, Said, directory, nowait, run, word};
use slowdisk::Filesystem;

/// The real program, in the same locale.
fn real(program: &str, words: &[&str]) -> Said {
    run(Command::new(program).args(words).env("LC_ALL", "C"))
}

/// The lines, or the parts that end with a NUL byte, in an order that does not depend on the program.
fn parts(said: &Said) -> Vec<&[u8]> {
    let parts = said.out.split(|byte| [b'\n', 0].contains(byte));
    let mut parts: Vec<_> = parts.collect();
    parts.sort_unstable();
    parts
}

/// A tree with links, holes, sums of more than 64 bits, and names of many kinds.
fn tree(root: &Path) {
    for dir in [
        "a/b/c",
        "a/empty",
        "blank \t name",
        "a/twin",
        "other",
        "a/b/above",
    ] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for (at, name) in ["a/file", "a/b/file", "a/b/c/.dot", "blank \t name/-n", "*"]
        .iter()
        .enumerate()
    {
        fs::write(root.join(name), vec![b'x'; at * 7001]).unwrap();
    }
    fs::write(root.join(OsStr::from_bytes(b"a/line\nbreak\xff")), "x").unwrap();
    fs::hard_link(root.join("a/file"), root.join("a/file again")).unwrap();
    symlink("a", root.join("link")).unwrap();
    symlink("nowhere", root.join("a/dangling")).unwrap();
    for name in ["a/huge", "a/b/huge", "a/b/c/huge"] {
        let file = File::create(root.join(name)).unwrap();
        file.set_len(i64::MAX as u64).unwrap();
    }
}

#[test]
fn pairs_of_options_of_du() {
    const OPTIONS: [&[&str]; 16] = [
        &["-a"],
        &["-s"],
        &["-c"],
        &["-h"],
        &["-b"],
        &["-k"],
        &["-m"],
        &["--apparent-size"],
        &["-x"],
        &["-0"],
        &["--time"],
        &["--time=ctime"],
        &["-d", "0"],
        &["-d1"],
        &["--exclude=*e*"],
        &["--exclude=c"],
    ];
    let (mount, other) = (mounted!(Filesystem::Tmpfs), mounted!(Filesystem::Tmpfs));
    let root = mount.path();
    tree(root);
    fs::write(other.path().join("file"), vec![1; 9999]).unwrap();
    let [twin, below, above] = ["a/twin", "other", "a/b/above"].map(|at| root.join(at));
    // A directory at a second place, another filesystem, and a directory within itself.
    let _bounds = [
        Bound::new(&root.join("a/b/c"), &twin),
        Bound::new(other.path(), &below),
        Bound::new(&root.join("a"), &above),
    ];
    let root = word(root);
    let version = real("du", &["--version"]);
    let apparent_directories = !version.text().contains(" 9.2") && !version.text().contains(" 9.3");
    if !apparent_directories {
        return slowdisk::skip_or_fail("du of coreutils before 9.2");
    }
    for first in OPTIONS {
        for second in OPTIONS {
            let words = [first, second, &[root]].concat();
            let ours = run(&mut nowait([&["du"], &words[..]].concat()));
            let has = |begin: &str| words.iter().any(|word| word.starts_with(begin));
            if has("-s") && (has("-a") || has("-d")) {
                // du(1) accepts -s with -d0, with a warning, and fails with 1.
                assert_eq!(ours.code, Some(2), "{words:?}");
                continue;
            }
            let (ours, theirs) = (ours.done(), real("du", &words).done());
            assert_eq!(
                parts(&ours),
                parts(&theirs),
                "{words:?} {ours:?} {theirs:?}"
            );
        }
    }
}

/// The effect of the options of `nowait scan` on the expression for find(1).
#[derive(Default)]
struct Search {
    recursive: bool,
    depth: Option<&'static str>,
    one_filesystem: bool,
    types: Vec<&'static str>,
    null: bool,
    format: Option<&'static str>,
}

impl Search {
    fn add(&mut self, option: &[&'static str]) {
        match *option {
            ["-r"] => self.recursive = true,
            ["--max-depth", depth] => self.depth = Some(depth),
            ["-x"] => self.one_filesystem = true,
            // find(1) refuses a type that is named twice.
            ["--type", types] if self.types.contains(&types) => {}
            ["--type", types] => self.types.push(types),
            ["-0"] => self.null = true,
            ["--format", format] => self.format = Some(format),
            // As `nowait scan --fields path,links,size`.
            ["--fields", _] => self.format = Some(r"%p\t%n\t%s"),
            _ => panic!("{option:?}"),
        }
    }

    fn find(&self, root: &str) -> Said {
        let mut find = Command::new("find");
        find.args([root, "-mindepth", "1"]).env("LC_ALL", "C");
        let depth = self.depth.or((!self.recursive).then_some("1"));
        find.args(depth.into_iter().flat_map(|depth| ["-maxdepth", depth]));
        find.args(self.one_filesystem.then_some("-xdev"));
        if !self.types.is_empty() {
            find.args(["-type", &self.types.join(",")]);
        }
        let end = if self.null { "\\0" } else { "\\n" };
        run(find
            .arg("-printf")
            .arg(format!("{}{end}", self.format.unwrap_or("%p"))))
    }
}

#[test]
fn pairs_of_options_of_scan() {
    const OPTIONS: [&[&str]; 10] = [
        &["-r"],
        &["--max-depth", "1"],
        &["--max-depth", "2"],
        &["-x"],
        &["--type", "f"],
        &["--type", "d,l"],
        &["-0"],
        &["--format", "%p %s %04m %n %l"],
        &["--format", "%-9y%P|%h|%f|%k"],
        &["--fields", "path,links,size"],
    ];
    let (mount, other) = (mounted!(Filesystem::Tmpfs), mounted!(Filesystem::Tmpfs));
    let root = mount.path();
    tree(root);
    fs::write(other.path().join("file"), "x").unwrap();
    let [twin, below] = ["a/twin", "other"].map(|at| root.join(at));
    let _bounds = [
        Bound::new(&root.join("a/b/c"), &twin),
        Bound::new(other.path(), &below),
    ];
    let root = word(root);
    for first in OPTIONS {
        for second in OPTIONS {
            let words = [&["scan"], first, second, &[root]].concat();
            let ours = run(&mut nowait(&words));
            if words.contains(&"--format") && words.contains(&"--fields") {
                assert_eq!(ours.code, Some(2), "{words:?}");
                continue;
            }
            let mut search = Search::default();
            search.add(first);
            search.add(second);
            let (ours, theirs) = (ours.done(), search.find(root).done());
            assert_eq!(
                parts(&ours),
                parts(&theirs),
                "{words:?} {ours:?} {theirs:?}"
            );
        }
    }
}

#[test]
fn pairs_of_options_of_fincore() {
    /// Ours, and those of util-linux. Its -r is our --raw, and its -h prints the help.
    const OPTIONS: [(&[&str], &[&str]); 6] = [
        (&["-b"], &["-b"]),
        (&["-n"], &["-n"]),
        (&["--raw"], &["--raw"]),
        (&["-J"], &["-J"]),
        (&["-o", "SIZE,FILE"], &["-o", "SIZE,FILE"]),
        (&["-o", "PAGES"], &["-o", "PAGES"]),
    ];
    let dir = directory();
    for (name, size) in [
        ("empty", 0),
        ("small", 5),
        ("blank name", 70_000),
        ("large", MIB),
    ] {
        fs::write(dir.path().join(name), vec![1; size as usize]).unwrap();
    }
    File::create(dir.path().join("hole"))
        .unwrap()
        .set_len(MIB)
        .unwrap();
    let files = ["empty", "small", "blank name", "large", "hole"];
    // util-linux writes B after numbers of bytes below 1024.
    let cells = |said: &Said| -> Vec<String> {
        let cells = said.text().split_whitespace();
        let bare = |cell: &str| match cell.strip_suffix('B') {
            Some(number) if number.parse::<u64>().is_ok() => number.to_owned(),
            _ => cell.to_owned(),
        };
        cells.map(bare).collect()
    };
    for first in OPTIONS {
        for second in OPTIONS {
            let words = |ours: bool| {
                let pick = |option: (&'static [&'static str], &'static [&'static str])| match ours {
                    true => option.0,
                    false => option.1,
                };
                // The columns are not the same by default.
                [
                    &["-o", "RES,PAGES,SIZE,FILE"],
                    pick(first),
                    pick(second),
                    &files,
                ]
                .concat()
            };
            let mut ours = nowait([&["fincore"], &words(true)[..]].concat());
            let ours = run(ours.current_dir(dir.path()));
            let has = |option: &str| words(true).contains(&option);
            if has("-J") && (has("-n") || has("--raw")) {
                assert_eq!(ours.code, Some(2), "{ours:?}");
                continue;
            }
            let mut theirs = Command::new("fincore");
            let theirs = run(theirs.args(words(false)).current_dir(dir.path())).done();
            let ours = ours.done();
            if has("-J") {
                // Sizes are numbers in ours, also without -b.
                let keys = |said: &Said| -> Vec<Vec<String>> {
                    let files = said.json()["fincore"].as_array().unwrap().clone();
                    let keys = |file: &serde_json::Value| {
                        let mut keys: Vec<_> = file.as_object().unwrap().keys().cloned().collect();
                        keys.sort();
                        keys
                    };
                    files.iter().map(keys).collect()
                };
                assert_eq!(keys(&ours), keys(&theirs), "{first:?} {second:?}");
                if has("-b") {
                    assert_eq!(ours.json()["fincore"], theirs.json()["fincore"]);
                }
            } else {
                assert_eq!(cells(&ours), cells(&theirs), "{first:?} {second:?}");
            }
        }
    }
}
