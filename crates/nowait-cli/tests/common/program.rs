//! Helpers that run the program, and files whose cached pages are known.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nowait::residency::Probe;
use serde_json::Value;
use slowdisk::{Filesystem, TestMount};
use tempfile::TempDir;
use test_support::limit::ended;
#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub use test_support::limit::wait_until;

pub const PAGE: u64 = 4096;
pub const MIB: u64 = 1 << 20;

/// Mounts a new filesystem. The test is skipped if that is not possible.
#[macro_export]
macro_rules! mounted {
    ($filesystem:expr) => {{
        slowdisk::require!($filesystem.available());
        slowdisk::TestMount::new($filesystem).expect("a fresh filesystem")
    }};
}

/// The program with these arguments.
pub fn nowait<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait"));
    command
        .args(words)
        .env("LC_ALL", "C.UTF-8")
        .env_remove("COLUMNS")
        .stdin(Stdio::null());
    command
}

/// The directory of libnowait_ahead.so, which cargo does not build for this test.
pub fn libraries() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| built(&["nowait-ahead"]))
}

/// The directory of libnowait_ahead.so and libnowait_aio.so.
pub fn all_libraries() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| built(&["nowait-ahead", "nowait-aio"]))
}

fn built(packages: &[&str]) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_nowait"));
    let target = program.ancestors().nth(2).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--target-dir"]).arg(target);
    build.args(packages.iter().flat_map(|package| ["-p", package]));
    assert!(build.status().unwrap().success());
    let mut directory = target.join("debug");
    if !is_open_to_all(&directory) {
        // Programs of other users load the libraries.
        let open = slowdisk::directory_until_exit().unwrap();
        for package in packages {
            let name = format!("lib{}.so", package.replace('-', "_"));
            slowdisk::copy_program(directory.join(&name), open.join(&name)).unwrap();
        }
        directory = open;
    }
    prepare_libraries(&directory);
    directory
}

/// Returns true if every user can reach the files of a directory.
fn is_open_to_all(directory: &Path) -> bool {
    let is_open = |dir: &Path| fs::metadata(dir).unwrap().permissions().mode() & 0o001 != 0;
    directory.ancestors().all(is_open)
}

/// Makes the directory that LD_PRELOAD names, beside libnowait_ahead.so.
pub fn prepare_libraries(directory: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/preload-directory.sh");
    let made = Command::new(script)
        .arg(directory)
        .arg("libnowait_aio.so")
        .status();
    assert!(made.unwrap().success());
}

/// Compiles a file of tests/c. The program is put into `directory`.
pub fn compile(compiler: &str, source: &str, words: &[&str], directory: &Path) -> PathBuf {
    let built = directory.join(source).with_extension("built");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(source);
    let mut command = Command::new(compiler);
    command
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Wno-nonnull", "-pthread"])
        .args(words)
        .arg("-o")
        .args([&built, &source]);
    let said = run(&mut command);
    assert_eq!(said.code, Some(0), "{said:?}");
    built
}

/// The output and the exit code of a run.
pub struct Said {
    /// `None` if a signal has ended it.
    pub code: Option<i32>,
    pub status: ExitStatus,
    pub out: Vec<u8>,
    pub err: String,
}

impl std::fmt::Debug for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let out = String::from_utf8_lossy(&self.out);
        write!(f, "{}\n{out}\n{}", self.status, self.err)
    }
}

impl Said {
    /// The output of a finished program.
    pub fn of(output: &Output) -> Said {
        Said {
            code: output.status.code(),
            status: output.status,
            out: output.stdout.clone(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("UTF-8")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Checks that the run succeeded without a message.
    pub fn done(self) -> Said {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{self:?}");
        self
    }

    /// Checks that the exit code is 1.
    pub fn in_part(self) -> Said {
        assert_eq!(self.code, Some(1), "{self:?}");
        self
    }
}

/// Runs a program to its end.
///
/// # Panics
/// If it hangs.
pub fn run(command: &mut Command) -> Said {
    run_with(command, b"")
}

/// Runs a program with this standard input.
pub fn run_with(command: &mut Command, input: &[u8]) -> Said {
    let (out, err) = (memory_file(), memory_file());
    let given = memory_file();
    given.write_all_at(input, 0).unwrap();
    let mut child = command
        .stdin(given)
        .stdout(out.try_clone().unwrap())
        .stderr(err.try_clone().unwrap())
        .spawn()
        .expect("the program starts");
    let status = ended(&mut child).unwrap_or_else(|why| panic!("{command:?}: {why}"));
    let read = |file: File| {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    Said {
        code: status.code(),
        status,
        out: read(out),
        err: String::from_utf8_lossy(&read(err)).into_owned(),
    }
}

/// Runs a program on a terminal that is 40 columns wide.
pub fn on_a_terminal(command: &mut Command) -> String {
    let (mut terminal, its) = terminal(40);
    let mut child = command.stdout(its).spawn().unwrap();
    *command = Command::new("true");
    let mut said = Vec::new();
    // A terminal whose other end is closed returns EIO.
    let _ = terminal.read_to_end(&mut said);
    assert!(child.wait().unwrap().success());
    String::from_utf8(said).unwrap().replace('\r', "")
}

/// Runs a program whose standard error is a terminal that is 80 columns wide, and interrupts it when
/// it has printed enough. Returns the text, which ends earlier if the program does.
pub fn drawn_until(command: &mut Command, is_enough: impl Fn(&str) -> bool) -> String {
    let (mut terminal, its) = terminal(80);
    let command_on_it = command
        .env("TERM", "xterm")
        .stdout(Stdio::null())
        .stderr(its);
    let mut child = command_on_it.spawn().unwrap();
    *command = Command::new("true");
    let (mut said, mut part, mut interrupted) = (String::new(), [0; 4096], false);
    // A terminal whose other end is closed returns EIO.
    while let Ok(read @ 1..) = terminal.read(&mut part) {
        said += &String::from_utf8_lossy(&part[..read]);
        if !interrupted && is_enough(&said) {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            interrupted = true;
        }
    }
    ended(&mut child).unwrap_or_else(|why| panic!("{why}: {said}"));
    said
}

/// A terminal of this width: the end of the test, and that of the program.
fn terminal(columns: u16) -> (File, OwnedFd) {
    use rustix::fs::OFlags;
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave: OwnedFd = rustix::fs::open(&name, flags, 0.into()).unwrap();
    let size = rustix::termios::Winsize {
        ws_row: 25,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&slave, size).unwrap();
    (master.into(), slave)
}

/// The percentages in a text, in order.
pub fn percentages(text: &str) -> Vec<u64> {
    let before = text.split(" %").collect::<Vec<_>>();
    let last_words = before[..before.len() - 1].iter().map(|text| {
        let start = text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        text[start..].parse().unwrap()
    });
    last_words.collect()
}

fn memory_file() -> File {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    rustix::fs::memfd_create("said", flags).unwrap().into()
}

/// The entry of a report with this path.
pub fn file<'a>(report: &'a Value, path: &Path) -> &'a Value {
    // fincore has the names of util-linux's.
    let (files, key) = match report["fincore"].as_array() {
        Some(files) => (files, "file"),
        None => (report["files"].as_array().unwrap(), "path"),
    };
    let named = |file: &&Value| file[key] == path.to_str().unwrap();
    let mut found = files.iter().filter(named);
    let file = found.next();
    assert!(found.next().is_none(), "{path:?} is there twice: {report}");
    file.unwrap_or_else(|| panic!("no {path:?}: {report}"))
}

/// A file on the device without cached pages.
pub fn cold(path: PathBuf, size: u64) -> PathBuf {
    let pattern: Vec<u8> = (0..size).map(|at| (at ^ (at >> 12)) as u8).collect();
    fs::write(&path, pattern).unwrap();
    evict(&path);
    path
}

pub fn evict(path: &Path) {
    slowdisk::evict(&File::open(path).unwrap()).unwrap();
}

/// Reads the pages of a byte range into the page cache, without readahead.
pub fn touch(path: &Path, range: Range<u64>) {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start).unwrap();
}

/// The cached byte ranges of a file: start and end.
///
/// Pages that the kernel has reclaimed by itself are included. Some machines reclaim pages without a
/// memory shortage (DAMON), even a millisecond after a read. cachestat(2) reports such pages as evicted. It
/// does not report pages that were never read or that were evicted by fadvise.
pub fn cached(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).unwrap();
    let probe = Probe::new(&file).unwrap();
    let map = probe.page_map(0..u64::MAX).unwrap();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut add = |range: Range<u64>| match ranges.last_mut() {
        Some(last) if last.1 == range.start => last.1 = range.end,
        _ => ranges.push((range.start, range.end)),
    };
    for run in map.known().expect("known").runs() {
        if run.resident {
            add(run.range);
        } else {
            reclaimed(&probe, run.range, &mut add);
        }
    }
    ranges
}

/// Calls `add` with the parts of a range that the kernel has reclaimed.
fn reclaimed(probe: &Probe<'_>, range: Range<u64>, add: &mut impl FnMut(Range<u64>)) {
    let sum = probe.residency(range.clone()).unwrap().known();
    let evicted = sum.expect("known").evicted.unwrap_or(0);
    let pages = (range.end - range.start).div_ceil(PAGE);
    if evicted >= pages {
        add(range);
    } else if evicted > 0 {
        let middle = range.start + pages / 2 * PAGE;
        reclaimed(probe, range.start..middle, add);
        reclaimed(probe, middle..range.end, add);
    }
}

/// The number of cached bytes of a file.
pub fn cached_bytes(path: &Path) -> u64 {
    cached(path).iter().map(|(from, to)| to - from).sum()
}

/// A path as an argument.
pub fn word(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// An overlay with one cold file in its lower layer, on an ext4.
pub fn overlay_with(name: &str, size: u64) -> (TestMount, PathBuf) {
    let base = TestMount::new(Filesystem::Ext4).expect("a fresh ext4");
    let lower = base.path().join("lower");
    fs::create_dir(&lower).unwrap();
    cold(lower.join(name), size);
    let overlay = TestMount::overlay(base).expect("an overlay");
    let path = overlay.path().join(name);
    (overlay, path)
}

/// The program as a user who owns no files. A copy of the program in the directory is run.
pub fn as_nobody<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> (Command, TempDir) {
    const NOBODY: u32 = 65534;
    let dir = open_directory();
    let copy = dir.path().join("nowait");
    slowdisk::copy_program(env!("CARGO_BIN_EXE_nowait"), &copy).unwrap();
    let mut command = Command::new(copy);
    command.args(words).uid(NOBODY).gid(NOBODY).current_dir("/");
    (command, dir)
}

/// A directory that every user may read.
pub fn open_directory() -> TempDir {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// A directory on a disk. The system's temporary directory may be on tmpfs. Tests open it to other users.
pub fn directory() -> TempDir {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let parent = match is_open_to_all(target) {
        true => target,
        false => Path::new("/var/tmp"),
    };
    tempfile::tempdir_in(parent).unwrap()
}

/// Makes a FIFO.
pub fn fifo(path: PathBuf) -> PathBuf {
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
    path
}

/// Runs `act` while another thread makes and removes files and directories in `dir`.
pub fn while_files_change<T>(dir: &Path, act: impl FnOnce() -> T) -> T {
    struct SetOnDrop<'a>(&'a AtomicBool);
    impl Drop for SetOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The other thread ends also if `act` panics.
        let _end = SetOnDrop(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for i in 0..200 {
                    let sub = dir.join(format!("{}", i % 10));
                    let _ = fs::create_dir(&sub);
                    let _ = fs::write(sub.join(format!("{i}")), "x");
                }
                for i in 0..10 {
                    let _ = fs::remove_dir_all(dir.join(format!("{i}")));
                }
            }
        });
        act()
    })
}

/// Limits the number of descriptors.
pub fn limited(command: &mut Command, most: u64) -> &mut Command {
    limited_to(command, "nofile", most)
}

/// Limits a resource of prlimit(1).
pub fn limited_to<'a>(command: &'a mut Command, resource: &str, most: u64) -> &'a mut Command {
    let limit = format!("--{resource}={most}:{most}");
    within(command, Command::new("prlimit").arg(limit))
}

/// Runs a command by another one, whose last arguments it becomes.
fn within<'a>(command: &'a mut Command, outer: &Command) -> &'a mut Command {
    let mut words = outer.get_args().map(OsStr::to_owned).collect::<Vec<_>>();
    words.push(command.get_program().to_owned());
    words.extend(command.get_args().map(OsStr::to_owned));
    *command = Command::new(outer.get_program());
    command.args(words)
}

/// A memory cgroup with a limit. Dropping it removes it.
pub struct Group(PathBuf);

impl Group {
    /// Returns `None` if no such cgroup can be made.
    pub fn new(limit: u64) -> Option<Group> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("nowait-test-{}-{number}", std::process::id());
        let of_one = Path::new("/sys/fs/cgroup/memory");
        let (root, file) = if of_one.join("memory.limit_in_bytes").exists() {
            (of_one, "memory.limit_in_bytes")
        } else {
            (Path::new("/sys/fs/cgroup"), "memory.max")
        };
        let group = Group(root.join(name));
        fs::create_dir(&group.0).ok()?;
        fs::write(group.0.join(file), limit.to_string()).ok()?;
        Some(group)
    }

    /// Runs a command in the group.
    pub fn around<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        within(
            command,
            Command::new("sh").args(["-c", script]).arg(&self.0),
        )
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// A bind mount of a directory. Dropping it unmounts it.
pub struct Bound<'a>(&'a Path);

impl<'a> Bound<'a> {
    pub fn new(what: &Path, at: &'a Path) -> Bound<'a> {
        rustix::mount::mount_bind(what, at).unwrap();
        Bound(at)
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}
