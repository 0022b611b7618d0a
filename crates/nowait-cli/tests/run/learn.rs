//! Tests of `nowait run --learn` and of `nowait learn`. The profiles are those of the user 65534.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::hostile::hostile;
use crate::program::{
    Group, MIB, Said, cached, cached_bytes, cold, compile, evict, fifo, libraries, nowait,
    open_directory, run, wait_until, word,
};
use serde_json::Value;
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount};
use tempfile::TempDir;
use test_support::repeat::{Excuse, repeat};

const NOBODY: u32 = 65534;

/// A directory with a copy of the program, in which the user 65534 has profiles.
struct Home(TempDir);

impl Home {
    /// `None` if this user cannot become another one.
    fn new() -> Option<Home> {
        if !rustix::process::geteuid().is_root() {
            slowdisk::skip_or_fail("not root");
            return None;
        }
        let home = open_directory();
        slowdisk::copy_program(env!("CARGO_BIN_EXE_nowait"), home.path().join("nowait")).unwrap();
        fs::create_dir(home.path().join("cache")).unwrap();
        chown(home.path().join("cache"), Some(NOBODY), Some(NOBODY)).unwrap();
        Some(Home(home))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn profiles(&self) -> PathBuf {
        self.path().join("cache/nowait/learn")
    }

    /// The file of the only profile.
    fn profile(&self) -> PathBuf {
        let mut files = fs::read_dir(self.profiles()).unwrap();
        let file = files.next().unwrap().unwrap().path();
        assert!(files.next().is_none());
        file
    }

    fn nowait(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.path().join("nowait"));
        command.args(words).uid(NOBODY).gid(NOBODY).current_dir("/");
        command.env("NOWAIT_LIBRARY_DIR", libraries());
        command.env("LC_ALL", "C.UTF-8");
        command.env("XDG_CACHE_HOME", self.path().join("cache"));
        command
    }

    /// A run that is learnt.
    fn learns(&self, words: &[&str]) -> Said {
        run(&mut self.nowait(&[&["run", "--wait", "--learn", "--"], words].concat()))
    }

    /// The entries of the only profile, by path.
    fn entries(&self) -> BTreeMap<String, Value> {
        let name = self.profile();
        let name = name.file_stem().unwrap().to_str().unwrap();
        let said = run(&mut self.nowait(&["learn", "show", "--json", name])).done();
        let lines: Vec<Value> = said
            .text()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0]["format"], "nowait learn");
        assert_eq!(lines.last().unwrap()["end"]["lines"], lines.len() - 2);
        let entry = |line: &Value| (line["path"].as_str().unwrap().to_owned(), line.clone());
        lines[1..lines.len() - 1].iter().map(entry).collect()
    }
}

macro_rules! home {
    () => {
        match Home::new() {
            Some(home) => home,
            None => return,
        }
    };
}

/// Runs a program beside which files are loaded. On a busy machine it may end before that. Then it runs again.
fn until(run: impl Fn() -> Said, is_loaded: impl Fn(&Said) -> bool) -> Said {
    let mut said = run();
    for _ in 0..20 {
        if is_loaded(&said) {
            break;
        }
        said = run();
    }
    said
}

/// The files that tests/c/uses.c uses.
fn fill(at: &Path) {
    for name in [
        "mapped",
        "unmapped",
        "read",
        "at",
        "by_number",
        "sent",
        "sought",
        "stream",
        "open",
        "duplicated",
        "replaced",
    ] {
        cold(at.join(name), 4 * MIB);
        fs::set_permissions(at.join(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    cold(at.join("small"), 100);
    for directory in ["listed", "many"] {
        fs::create_dir(at.join(directory)).unwrap();
        fs::set_permissions(at.join(directory), fs::Permissions::from_mode(0o755)).unwrap();
        (0..100).for_each(|n| fs::write(at.join(directory).join(n.to_string()), "x").unwrap());
    }
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The ranges of an entry in pages.
fn pages(entry: &Value) -> Vec<(u64, u64)> {
    let ranges = entry["ranges"].as_array().unwrap();
    let page = |at: &Value| at.as_u64().unwrap().div_ceil(4096);
    ranges
        .iter()
        .map(|range| (page(&range[0]), page(&range[1])))
        .collect()
}

#[test]
fn what_a_program_uses_is_learnt() {
    let home = home!();
    let files = open_directory();
    fill(files.path());
    let at = word(files.path());
    let uses = compile("cc", "uses.c", &[], home.path());
    let paths = |name: &str| format!("{at}/{name}");
    for end in ["r", "_", "e"] {
        // The program waits 10 ms for the helper before it unmaps memory.
        let excuses = [
            Excuse::Busy(Duration::from_millis(10)),
            Excuse::ChildPreempted,
        ];
        let entries = repeat("unmapped memory is looked at", &excuses, || {
            let _ = fs::remove_dir_all(home.profiles());
            let said = home.learns(&[word(&uses), at, end]).done();
            assert!(said.text().starts_with("done\n"));
            let entries = home.entries();
            let found = pages(&entries[&paths("unmapped")]);
            match found.is_empty() {
                true => Err("nothing was found"),
                false => Ok(entries),
            }
        });
        let of = |name: &str| pages(&entries[&paths(name)]);
        assert!(
            of("mapped").contains(&(256, 257)),
            "{end}: {:?}",
            of("mapped")
        );
        assert!(
            of("unmapped").contains(&(512, 513)),
            "{end}: {:?}",
            of("unmapped")
        );
        for name in ["read", "duplicated", "replaced"] {
            assert_eq!(of(name), [(0, 25)], "{end}: {name}");
        }
        assert_eq!(of("at"), [(512, 513)], "{end}");
        assert_eq!(of("by_number"), [(0, 25), (512, 513)], "{end}");
        assert_eq!(of("sent"), [(256, 257), (512, 513), (768, 769)], "{end}");
        assert_eq!(of("sought"), [(0, 1), (768, 769)], "{end}");
        assert_eq!(of("open"), [(0, 1)], "{end}");
        assert!(of("stream")[0].1 <= 2, "{end}");
        for name in ["missing", "small", "listed/7", "listed/8", "listed/missing"] {
            let entry = entries[&paths(name)].as_object().unwrap();
            assert_eq!(entry.keys().collect::<Vec<_>>(), ["path"], "{end}");
        }
        assert!(entries.contains_key(&format!("{at}/../accessed")), "{end}");
        assert_eq!(entries[&paths("listed")]["listed"], true, "{end}");
        assert_eq!(entries[&paths("many")]["names"], true, "{end}");
        // The program itself, and its libraries.
        assert!(!pages(&entries[word(&uses)]).is_empty(), "{end}");
        assert!(entries.keys().any(|path| path.contains("libc.so")), "{end}");
    }
}

/// The names of the functions that files of the library interpose.
fn interposed() -> Vec<&'static str> {
    let files = [
        include_str!("../../../nowait-ahead/src/calls/close.rs"),
        include_str!("../../../nowait-ahead/src/calls/read.rs"),
        include_str!("../../../nowait-ahead/src/calls/execute.rs"),
    ];
    let name = |line: &'static str| line.strip_prefix("    fn ")?.split_once('(');
    let variadic = |line: &'static str| line.strip_prefix("variadic! { ");
    let lines = || files.iter().flat_map(|file| file.lines());
    let names = lines().filter_map(name).map(|(name, _)| name);
    let words = lines().filter_map(variadic).flat_map(str::split_whitespace);
    names
        .chain(words)
        .filter(|word| !["}", "0", "1", "2"].contains(word))
        .collect()
}

#[test]
fn each_way_to_close_to_read_at_an_offset_and_to_execute_is_learnt() {
    let home = home!();
    let files = open_directory();
    let file = cold(files.path().join("file"), 4 * MIB);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let ways = compile("cc", "ways.c", &[], home.path());
    let table = run(&mut Command::new(&ways)).done();
    let table: Vec<_> = table
        .text()
        .lines()
        .map(|it| it.split_once(' ').unwrap())
        .collect();
    let interposed = interposed();
    assert!(interposed.len() > 25, "{interposed:?}");
    for name in interposed {
        assert!(
            table.iter().any(|(_, it)| *it == name),
            "ways.c has no {name}"
        );
    }
    for (kind, name) in table {
        let _ = fs::remove_dir_all(home.profiles());
        let said = home.learns(&[word(&ways), word(&file), name]);
        let code = if kind == "E" { Some(0) } else { None };
        assert_eq!(
            (said.code, said.err.as_str()),
            (code, ""),
            "{name}: {said:?}"
        );
        let learnt = pages(&home.entries()[word(&file)]);
        let expected = if kind == "R" { (512, 513) } else { (0, 25) };
        assert_eq!(learnt, [expected], "{name}");
    }
}

/// It changes nothing of what the library knows about its parent.
#[test]
fn a_child_of_vfork_is_not_learnt() {
    let home = home!();
    let notices = compile("cc", "notices.c", &[], home.path());
    let file = cold(home.path().join("file"), 4 * MIB);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    home.learns(&[word(&notices), "vfork", word(&file)]).done();
    let learnt = pages(&home.entries()[word(&file)]);
    assert_eq!(learnt, [(0, 2)]);
}

#[test]
fn the_standard_input_is_learnt() {
    let home = home!();
    let files = open_directory();
    let file = files.path().join("file");
    cold(file.clone(), 4 * MIB);
    let script = format!("head -c 100000 < {} >/dev/null", word(&file));
    home.learns(&["sh", "-c", &script]).done();
    let read = pages(&home.entries()[word(&file)]);
    assert_eq!(read, [(0, 25)]);
}

/// A program that is killed, and a static one, are looked at while they run.
#[test]
fn mapped_files_of_programs_that_tell_nothing_are_learnt() {
    let home = home!();
    let files = open_directory();
    fill(files.path());
    let at = word(files.path());
    for (words, is_static) in [(&[][..], false), (&["-static"], true)] {
        let uses = compile("cc", "uses.c", words, home.path());
        let learn = || {
            let _ = fs::remove_dir_all(home.profiles());
            let run = ["run", "--wait", "--learn", "--", word(&uses), at, "k"];
            let mut command = home.nowait(&run);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            assert_eq!(command.status().unwrap().signal(), Some(9));
            home.entries()
        };
        // On a busy machine it may be killed before it has opened all of its files, or before it is looked at.
        let mut entries = learn();
        for _ in 0..20 {
            if entries.contains_key(&format!("{at}/open")) {
                break;
            }
            entries = learn();
        }
        // The kernel may map the whole folio of the page that the program has used.
        let mapped = pages(&entries[&format!("{at}/mapped")]);
        let has_page = mapped
            .iter()
            .any(|(start, end)| (*start..*end).contains(&256));
        assert!(has_page, "{is_static}: {mapped:?}");
        assert_eq!(
            pages(&entries[&format!("{at}/open")]),
            [(0, 1)],
            "{is_static}"
        );
    }
}

/// The end of a server is not waited for.
#[test]
fn a_server_is_learnt_after_some_time() {
    let home = home!();
    let files = open_directory();
    fill(files.path());
    let uses = compile("cc", "uses.c", &[], home.path());
    let mut command = home.nowait(&[
        "run",
        "--wait",
        "--learn",
        "--",
        word(&uses),
        word(files.path()),
        "s",
    ]);
    let mut server = command.stdout(Stdio::null()).spawn().unwrap();
    wait_until("a profile", || {
        let entries = fs::read_dir(home.profiles()).into_iter().flatten();
        // It is written under another name.
        let is_profile = |name: std::ffi::OsString| name.as_encoded_bytes().ends_with(b".profile");
        entries.flatten().any(|entry| is_profile(entry.file_name()))
    });
    std::thread::sleep(Duration::from_millis(100));
    let mapped = pages(&home.entries()[&format!("{}/mapped", word(files.path()))]);
    assert!(mapped.contains(&(256, 257)), "{mapped:?}");
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(server.wait().unwrap().signal(), Some(15));
}

#[test]
fn what_was_learnt_is_loaded_on_each_filesystem() {
    let home = home!();
    let uses = compile("cc", "uses.c", &[], home.path());
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs] {
        let mount = mounted!(filesystem);
        fill(mount.path());
        check_loading(&home, &uses, &mount, mount.path());
    }
    let base = mounted!(Filesystem::Ext4);
    let lower = base.path().join("lower");
    fs::create_dir(&lower).unwrap();
    fill(&lower);
    let overlay = TestMount::overlay(base).expect("an overlay");
    check_loading(&home, &uses, &overlay, overlay.lower().unwrap());
}

/// Makes a mount accessible to all users.
fn show(mount: &TestMount) {
    let above = mount.path().ancestors();
    for above in above.take_while(|it| *it != Path::new("/tmp")) {
        fs::set_permissions(above, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A profile is loaded by a program that uses nothing of it. `files` is where the residency is known.
fn check_loading(home: &Home, uses: &Path, mount: &TestMount, files: &Path) {
    let at = word(mount.path());
    show(mount);
    let _ = fs::remove_dir_all(home.profiles());
    mount.remount().unwrap();
    let learns = |words: &[&str]| {
        run(&mut home
            .nowait(&[&["run", "--wait", "--learn=name", "--stats", "--"], words].concat()))
    };
    let said = learns(&[word(uses), at, "r"]);
    assert!(said.err.contains("nothing was loaded"), "{said:?}");
    mount.remount().unwrap();
    let said = until(
        || learns(&["sleep", "1"]),
        |said| !said.err.contains("before all was loaded"),
    );
    assert!(said.err.contains("nowait: loaded "), "{said:?}");
    for (name, from, to) in [
        ("mapped", 256, 257),
        ("read", 0, 25),
        ("at", 512, 513),
        ("sought", 768, 769),
    ] {
        let ranges = cached(&files.join(name));
        let is_cached = |range: &(u64, u64)| range.0 <= from * 4096 && to * 4096 <= range.1;
        assert!(ranges.iter().any(is_cached), "{at}/{name}: {ranges:?}");
    }
    // Nothing else is read.
    assert_eq!(cached_bytes(&files.join("at")), 4096, "{at}");
    assert_eq!(cached_bytes(&files.join("small")), 0, "{at}");
}

#[test]
fn each_command_has_a_profile_and_each_name() {
    let home = home!();
    let count = || fs::read_dir(home.profiles()).map_or(0, Iterator::count);
    home.learns(&["sh", "-c", ":"]).done();
    home.learns(&["sh", "-c", ":"]).done();
    assert_eq!(count(), 1);
    home.learns(&["sh", "-c", ": 2"]).done();
    assert_eq!(count(), 2);
    for command in ["true", "sh"] {
        run(&mut home.nowait(&["run", "--wait", "--learn=a-name", "--", command])).done();
    }
    assert_eq!(count(), 3);
    let listed = run(&mut home.nowait(&["learn", "list", "--json"]))
        .done()
        .json();
    let profiles = listed["profiles"].as_array().unwrap();
    let runs = |name: &str| {
        let found = profiles
            .iter()
            .find(|it| it["name"].as_str().unwrap().starts_with(name));
        found.unwrap_or_else(|| panic!("{name}: {listed}"))["runs"].as_u64()
    };
    assert_eq!((runs("a-name"), profiles.len()), (Some(2), 3));
    // An argument may be a password.
    home.learns(&["sh", "-c", ": secret"]).done();
    let text = run(&mut home.nowait(&["learn", "list"])).done();
    let (has_name, program) = (
        text.text().contains("a-name"),
        text.text().contains("/sh\n"),
    );
    assert!(
        has_name && program && !text.text().contains("secret"),
        "{text:?}"
    );
    for profile in fs::read_dir(home.profiles()).unwrap() {
        let profile = fs::read_to_string(profile.unwrap().path()).unwrap();
        assert!(!profile.contains("secret"), "{profile}");
    }
    let name = word(&home.profiles().join("a-name")).to_owned();
    assert_eq!(
        run(&mut home.nowait(&["learn", "forget", &name])).code,
        Some(1)
    );
    run(&mut home.nowait(&["learn", "forget", "a-name"])).done();
    assert_eq!(count(), 3);
    let said = run(&mut home.nowait(&["learn", "show", "a-name"]));
    assert!(
        said.code == Some(1) && said.err.contains("nowait learn list"),
        "{said:?}"
    );
    run(&mut home.nowait(&["learn", "forget", "--all"])).done();
    assert_eq!(count(), 0);
    for name in ["..", "a/b", "", " "] {
        let option = format!("--learn={name}");
        let said = run(&mut home.nowait(&["run", "--wait", &option, "--", "true"]));
        assert_eq!(
            said.code,
            Some(if name.is_empty() { 0 } else { 2 }),
            "{name}: {said:?}"
        );
    }
    let said = run(&mut home.nowait(&["run", "--wait", "--learn", "--keep-cache", "--", "true"]));
    assert_eq!(said.code, Some(2), "{said:?}");
}

/// Paths below the working directory belong to that of each run.
#[test]
fn relative_paths_are_loaded_in_another_directory() {
    let home = home!();
    let files = open_directory();
    for name in ["a", "b"] {
        let directory = files.path().join(name);
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        cold(directory.join("file"), 100_000);
    }
    let learns = |directory: &str, script: &str| {
        let mut command = home.nowait(&["run", "--wait", "--learn=x", "--", "sh", "-c", script]);
        run(command.current_dir(files.path().join(directory))).done()
    };
    learns("a", "cat file");
    assert!(home.entries().contains_key("file"));
    evict(&files.path().join("a/file"));
    // It is another file with the same name, which is loaded as a whole.
    let loaded = || cached_bytes(&files.path().join("b/file"));
    until(|| learns("b", "sleep 1"), |_| loaded() == 100_000);
    assert_eq!(loaded(), 100_000);
    assert_eq!(cached_bytes(&files.path().join("a/file")), 0);
}

/// The program runs as without `nowait run`.
#[test]
fn profiles_that_cannot_be_used_are_reported() {
    let home = home!();
    let learns = || home.learns(&["echo", "text"]);
    learns().done();
    let profile = home.profile();
    let whole = fs::read(&profile).unwrap();
    let spoil: [(&str, &dyn Fn()); 8] = [
        ("cut off", &|| {
            fs::write(&profile, &whole[..whole.len() / 2]).unwrap()
        }),
        ("no profile", &|| fs::write(&profile, [0; 100]).unwrap()),
        ("cut off", &|| fs::write(&profile, "").unwrap()),
        ("another user", &|| {
            chown(&profile, Some(1), None).unwrap();
            fs::set_permissions(&profile, fs::Permissions::from_mode(0o644)).unwrap();
        }),
        ("may write", &|| {
            fs::set_permissions(&profile, fs::Permissions::from_mode(0o666)).unwrap()
        }),
        ("", &|| {
            fs::remove_file(&profile).unwrap();
            symlink("/etc/passwd", &profile).unwrap();
        }),
        ("no file", &|| {
            fs::remove_file(&profile).unwrap();
            let fifo = fifo(profile.clone());
            chown(fifo, Some(NOBODY), Some(NOBODY)).unwrap();
        }),
        ("too large", &|| {
            fs::remove_file(&profile).unwrap();
            fs::File::create(&profile)
                .unwrap()
                .set_len(1 << 30)
                .unwrap();
            chown(&profile, Some(NOBODY), Some(NOBODY)).unwrap();
        }),
    ];
    for (why, spoil) in spoil {
        spoil();
        let said = learns();
        assert_eq!(
            (said.code, said.text()),
            (Some(0), "text\n"),
            "{why}: {said:?}"
        );
        let expected = format!("nowait: {}: ", word(&profile));
        assert!(
            said.err.starts_with(&expected) && said.err.contains(why),
            "{why}: {said:?}"
        );
        assert!(
            said.err.ends_with(": the profile was not used\n"),
            "{why}: {said:?}"
        );
        // The next run has a new one.
        learns().done();
        assert_eq!(fs::metadata(&profile).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::metadata(&profile).unwrap().uid(), NOBODY);
    }
    let said = run(home
        .nowait(&["run", "--wait", "--learn", "--", "echo", "text"])
        .env_remove("XDG_CACHE_HOME")
        .env_remove("HOME"));
    assert!(
        said.text() == "text\n" && said.code == Some(0) && said.err.contains("XDG_CACHE_HOME"),
        "{said:?}"
    );
}

#[test]
fn a_profile_that_cannot_be_written_is_reported() {
    let home = home!();
    let cache = home.path().join("cache");
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o500)).unwrap();
    let said = home.learns(&["echo", "text"]);
    assert_eq!((said.code, said.text()), (Some(0), "text\n"), "{said:?}");
    assert!(
        said.err.contains("the profile was not written") && said.err.contains("Permission denied"),
        "{said:?}"
    );
    // A full filesystem.
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o700)).unwrap();
    home.learns(&["echo", "text"]).done();
    let profile = home.profile();
    let before = fs::read(&profile).unwrap();
    let script = "mount -t tmpfs -o nr_inodes=2,mode=0700,uid=65534 none $0 && exec setpriv --reuid=65534 --clear-groups \"$@\"";
    let inner = home.nowait(&["run", "--wait", "--learn", "--", "echo", "text"]);
    let mut full = Command::new("unshare");
    full.args(["--mount", "sh", "-c", script, word(&cache)]);
    full.arg(inner.get_program()).args(inner.get_args());
    full.envs(
        inner
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let said = run(&mut full);
    assert_eq!((said.code, said.text()), (Some(0), "text\n"), "{said:?}");
    assert!(
        said.err.contains("the profile was not written") && said.err.contains("No space left"),
        "{said:?}"
    );
    assert_eq!(fs::read(&profile).unwrap(), before);
}

/// The last one to end wins, and no reader sees a part.
#[test]
fn several_runs_learn_at_the_same_time() {
    let home = home!();
    for _ in 0..5 {
        let runs: Vec<_> = (0..6)
            .map(|_| {
                let mut command = home.nowait(&[
                    "run",
                    "--wait",
                    "--learn",
                    "--",
                    "sh",
                    "-c",
                    "cat /etc/passwd; ls / >/dev/null",
                ]);
                command
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for child in runs {
            let output = child.wait_with_output().unwrap();
            assert!(
                output.status.success() && output.stderr.is_empty(),
                "{output:?}"
            );
        }
        assert!(
            home.entries().contains_key("/etc/passwd"),
            "{:?}",
            home.entries().keys()
        );
    }
}

#[test]
fn files_that_vanish_and_are_replaced_do_no_harm() {
    let home = home!();
    let files = open_directory();
    let file = |name: &str| files.path().join(name);
    let contents = |size: u64| {
        for name in ["gone", "replaced", "large", "fifo"] {
            let _ = fs::remove_file(file(name));
            cold(file(name), size);
        }
    };
    contents(50_000);
    let cat = format!(
        "cat {0}/gone {0}/replaced {0}/large {0}/fifo >/dev/null",
        word(files.path())
    );
    run(&mut home.nowait(&["run", "--wait", "--learn=x", "--", "sh", "-c", &cat])).done();
    contents(60_000);
    fs::remove_file(file("gone")).unwrap();
    fs::remove_file(file("fifo")).unwrap();
    fifo(file("fifo"));
    cold(file("large"), 2 * MIB);
    let loaded = || cached_bytes(&file("replaced"));
    let sleep = ["run", "--wait", "--learn=x", "--", "sleep", "1"];
    until(
        || run(&mut home.nowait(&sleep)).done(),
        |_| loaded() == 60_000,
    );
    assert_eq!(loaded(), 60_000);
    assert_eq!(cached_bytes(&file("large")), 0);
}

/// The first run of Python reads a module's source and writes its bytecode, which the second one reads.
#[test]
fn bytecode_that_the_first_run_has_written_is_learnt() {
    let home = home!();
    let files = open_directory();
    fs::write(files.path().join("module.py"), "x = 1\n".repeat(10_000)).unwrap();
    let written = files.path().join("bytecode");
    fs::create_dir(&written).unwrap();
    chown(&written, Some(NOBODY), Some(NOBODY)).unwrap();
    let python = || {
        let words = [
            "run",
            "--wait",
            "--learn=x",
            "--",
            "/usr/bin/python3",
            "-c",
            "import module",
        ];
        let mut command = home.nowait(&words);
        command.env_remove("PYTHONDONTWRITEBYTECODE");
        command
            .env("PYTHONPATH", files.path())
            .env("PYTHONPYCACHEPREFIX", &written);
        run(&mut command).done();
    };
    let bytes = |end: &str| {
        let entries = home.entries();
        let of = entries
            .iter()
            .find(|(path, _)| path.contains("module") && path.ends_with(end));
        of.and_then(|(_, entry)| entry["ranges"][0][1].as_u64())
    };
    python();
    assert_eq!(bytes("/module.py"), Some(60_000));
    python();
    assert!(
        bytes(".pyc").is_some_and(|bytes| bytes > 10_000),
        "{:?}",
        home.entries()
    );
}

#[test]
fn a_quarter_of_the_available_memory_is_loaded() {
    let home = home!();
    let Some(group) = Group::new(128 * MIB) else {
        return slowdisk::skip_or_fail("a cgroup with a memory controller");
    };
    let files = open_directory();
    let large = cold(files.path().join("large"), 200 * MIB);
    let cat = ["run", "--wait", "--learn=x", "--", "cat", word(&large)];
    run(&mut home.nowait(&cat)).done();
    evict(&large);
    let inner = home.nowait(&["run", "--wait", "--learn=x", "--", "sleep", "1"]);
    let mut command = Command::new("env");
    for (name, value) in inner.get_envs() {
        let value = value.unwrap().to_str().unwrap();
        command.arg(format!("{}={value}", name.to_str().unwrap()));
    }
    command.args(["setpriv", "--reuid=65534", "--clear-groups"]);
    command.arg(inner.get_program()).args(inner.get_args());
    let command = group.around(&mut command);
    let mut loaded = 0;
    for _ in 0..20 {
        run(command).done();
        loaded = cached_bytes(&large);
        if loaded >= MIB {
            break;
        }
    }
    assert!((MIB..=32 * MIB).contains(&loaded), "{loaded}");
}

#[test]
fn a_disk_that_hangs_does_not_keep_the_program() {
    let home = home!();
    slowdisk::require!(slowdisk::available());
    let uses = compile("cc", "uses.c", &[], home.path());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let mount = TestMount::filled(&disk, Filesystem::Ext4, fill).unwrap();
    show(&mount);
    let learns = |words: &[&str]| {
        run(&mut home.nowait(&[&["run", "--wait", "--learn=x", "--"], words].concat()))
    };
    learns(&[word(&uses), word(mount.path()), "r"]).done();
    mount.remount().unwrap();
    disk.inject(Fault::stall(0..disk.size()).reads_only());
    // The run ends while the disk still hangs.
    let go = home.path().join("go");
    let waits = format!("until [ -e {} ]; do sleep 0.01; done; exit 3", word(&go));
    let said = std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("a read waits for the disk", || disk.stalled() > 0);
            fs::write(&go, "").unwrap();
        });
        learns(&["sh", "-c", &waits])
    });
    disk.release_all();
    wait_until("the filesystem is not in use", || mount.remount().is_ok());
    assert_eq!((said.code, said.err.as_str()), (Some(3), ""));
}

/// A process that holds a lease for writing (fcntl(2)) has the file open alone.
#[test]
fn programs_get_leases_on_files_that_are_read_ahead() {
    let home = home!();
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    // Only the owner may take a lease.
    let fill = |at: &Path| {
        fs::create_dir(at.join("d")).unwrap();
        fs::set_permissions(at.join("d"), fs::Permissions::from_mode(0o755)).unwrap();
        for n in 0..400 {
            let path = cold(at.join("d").join(n.to_string()), 40_000);
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let mount = TestMount::filled(&disk, Filesystem::Ext4, fill).unwrap();
    show(&mount);
    // It keeps the lease on the last file, and reads that one after the others.
    let script = "\
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
def lease(entry):
    file = os.open(entry.name, os.O_RDWR)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    return file
os.chdir(sys.argv[1])
*entries, last = sorted(os.scandir('.'), key=lambda entry: entry.inode())
kept = lease(last)
for entry in entries:
    file = lease(entry)
    while os.read(file, 1 << 16): pass
    os.close(file)
print('kept' if fcntl.fcntl(kept, fcntl.F_GETLEASE) == fcntl.F_WRLCK else 'broken')";
    let program = ["--wait", "--stats", "--", "python3", "-c", script];
    let files = mount.path().join("d");
    let program = [&program[..], &[word(&files)]].concat();
    let loads: fn(&str) -> bool = |err| err.contains("nowait: loaded ");
    let reads: fn(&str) -> bool = |err| err.contains(" files: ") && !err.contains(" of 0 files");
    let walk = ["--data", "--walk", word(&files)];
    for (mode, is_used) in [(&["--learn"][..], loads), (&walk, reads)] {
        let keeps = || {
            mount.remount().unwrap();
            let said = run(&mut home.nowait(&[&["run"], mode, &program[..]].concat()));
            assert_eq!(said.code, Some(0), "{said:?}");
            is_used(&said.err) && said.text() == "kept\n"
        };
        // The first run is learnt. On a busy machine the program may end before files are read ahead. A lease that is taken
        // just after /proc/locks was read may be broken.
        let is_kept = (0..20).any(|_| keeps());
        assert!(is_kept, "{mode:?}");
    }
}

#[test]
fn nothing_is_loaded_of_a_filesystem_that_the_program_unmounts() {
    if !rustix::process::geteuid().is_root() {
        return slowdisk::skip_or_fail("needs root");
    }
    let mount = mounted!(Filesystem::Ext4);
    let at = word(mount.path());
    fill(mount.path());
    mount.remount().unwrap();
    let script = "device=$(findmnt -no SOURCE \"$1\") && umount \"$1\" && sleep 1 && mount \"$device\" \"$1\" && cat \"$1/small\" \"$1/at\" | wc -c";
    let name = format!("unmounts-{}", std::process::id());
    let learn = format!("--learn={name}");
    let nowait = |words: &[&str]| {
        let mut command = nowait(words);
        run(command.env("NOWAIT_LIBRARY_DIR", libraries()))
    };
    let is_unmounted = |line: &str| line.contains("unmounted") && line.ends_with(at);
    let shows = || nowait(&["learn", "show", &name]);
    // A mount that is away for a moment may be missed.
    for n in 0..20 {
        let program = ["--", "sh", "-c", script, "sh", at];
        let said = nowait(&[&["run", "--wait", &learn], &program[..]].concat()).done();
        assert_eq!(said.text().trim(), (100 + 4 * MIB).to_string());
        if n > 1 && shows().text().lines().any(is_unmounted) {
            break;
        }
    }
    let shown = shows();
    mount.remount().unwrap();
    let said = nowait(&["run", "--wait", &learn, "--stats", "--", "sleep", "1"]);
    let loaded = cached_bytes(&mount.path().join("at"));
    nowait(&["learn", "forget", &name]).done();
    assert!(shown.text().lines().any(is_unmounted), "{shown:?}");
    assert!(said.err.contains("nowait: loaded "), "{said:?}");
    assert_eq!(loaded, 0);
}

/// A sandbox in a program, and a program that starts many others.
#[test]
fn programs_notice_nothing() {
    let home = home!();
    let sandbox = compile("cc", "sandbox.c", &[], home.path());
    for words in [
        &[word(&sandbox)][..],
        &[
            "sh",
            "-c",
            "for n in 1 2 3 4 5 6 7 8 9; do (exec cat /etc/passwd | wc -l); done; exit 3",
        ],
        &[
            "python3",
            "-c",
            "import os, subprocess, json; print(json.dumps(subprocess.run(['pwd'], capture_output=True).stdout.decode())); os._exit(4)",
        ],
        &[
            "perl",
            "-e",
            "$| = 1; print 1; if (fork) { wait; exec 'true' } print 2",
        ],
    ] {
        let mut direct = Command::new(words[0]);
        direct
            .args(&words[1..])
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir("/")
            .env("LC_ALL", "C.UTF-8");
        let direct = run(&mut direct);
        for _ in 0..2 {
            let said = home.learns(words);
            assert_eq!(
                (said.code, &said.err),
                (direct.code, &direct.err),
                "{words:?}"
            );
            let sorted = |said: &Said| {
                let mut bytes = said.out.clone();
                bytes.sort_unstable();
                bytes
            };
            assert_eq!(sorted(&said), sorted(&direct), "{words:?}");
        }
    }
}

/// The bytes of stack that the library's functions use at most, beside those of the C library.
const STACK: u64 = 1024;

/// A signal handler may have a small stack. The kernel's part of it depends on the processor, and so does that of ld.so(8), which the
/// program does not need.
#[test]
fn the_library_needs_little_of_a_programs_stack() {
    let home = home!();
    let small_stack = compile("cc", "small_stack.c", &["-Wl,-z,now"], home.path());
    let uses = |said: &Said| -> Vec<(String, u64)> {
        assert_eq!((said.code, said.err.as_str()), (Some(7), ""), "{said:?}");
        let line = |line: &str| {
            let (bytes, name) = line.split_once(' ').unwrap();
            (name.to_owned(), bytes.parse().unwrap())
        };
        said.text().lines().map(line).collect()
    };
    // Parts of it are cached.
    let large = cold(home.path().join("large"), 8 * MIB);
    fs::set_permissions(&large, fs::Permissions::from_mode(0o644)).unwrap();
    (0..8).for_each(|n| crate::program::touch(&large, n * MIB..n * MIB + 4096));
    let words = [word(&small_stack), word(&large)];
    let direct = uses(&run(Command::new(words[0])
        .arg(words[1])
        .uid(NOBODY)
        .gid(NOBODY)));
    for options in [
        &["--ahead"][..],
        &["--data"],
        &["--keep-cache"],
        &["--learn"],
        &["--learn", "--data"],
    ] {
        let words = [&["run"], options, &["--"], &words].concat();
        let watched = uses(&run(&mut home.nowait(&words)));
        let more = |((name, alone), (_, bytes)): (&(String, u64), &(String, u64))| {
            (name.clone(), bytes.saturating_sub(*alone))
        };
        let more: Vec<(String, u64)> = direct.iter().zip(&watched).map(more).collect();
        let is_little = more.iter().all(|(_, bytes)| *bytes <= STACK);
        assert!(is_little, "{options:?}: {more:?}");
        assert_eq!(direct.len(), watched.len());
    }
}

/// The profile can be read after a program has written into the channel.
#[test]
fn programs_that_write_into_the_channel_do_no_harm() {
    let home = home!();
    let hostile = hostile(home.path());
    for words in [
        &["random"][..],
        &["marks"],
        &["number"],
        &["events", "/", "/etc/passwd", "/missing\n"],
    ] {
        let command = [&["run", "--wait", "--learn=x", "--", word(&hostile)], words].concat();
        let said = run(&mut home.nowait(&command));
        assert_eq!((said.code, said.err.as_str()), (Some(7), ""), "{words:?}");
        run(&mut home.nowait(&["learn", "show", "x"])).done();
    }
    let entries = home.entries();
    assert!(entries.contains_key("/etc/passwd"), "{:?}", entries.keys());
}

/// Root's profiles have a directory of their own, whatever the environment says.
#[test]
fn the_profiles_of_root_are_in_var_lib() {
    let home = home!();
    let script = "mkdir -p /var/lib && mount -t tmpfs none /var/lib && \"$0\" run --wait --learn=x -- true && ls /var/lib/nowait/learn";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_nowait")]);
    command
        .env("NOWAIT_LIBRARY_DIR", libraries())
        .env("XDG_CACHE_HOME", home.path());
    assert_eq!(run(&mut command).done().text(), "x.profile\n");
}
