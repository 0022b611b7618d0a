//! The program as its users run it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The program's file.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_nowait-bench");

/// The program with these arguments.
pub fn nowait_bench<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(words)
        .env("LC_ALL", "C.UTF-8")
        .env_remove("COLUMNS")
        .env_remove("NOWAIT_BACKEND")
        .stdin(Stdio::null());
    command
}

/// The exit code and the output of a run.
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl std::fmt::Debug for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {:?}\n{}\n{}", self.code, self.out, self.err)
    }
}

impl Said {
    /// The output of a program that has ended.
    pub fn of(output: &Output) -> Said {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// Asserts success, without a message on standard error.
    pub fn done(self) -> Said {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{self:?}");
        self
    }

    /// Asserts exit code 1.
    pub fn in_part(self) -> Said {
        assert_eq!(self.code, Some(1), "{self:?}");
        self
    }

    pub fn text(&self) -> &str {
        &self.out
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Runs the program to its end.
pub fn run(command: &mut Command) -> Said {
    Said::of(&command.output().expect("the program starts"))
}

/// The names in a directory.
pub fn names(here: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(here).unwrap();
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

/// The mounts below a directory.
pub fn mounts(here: &Path) -> Vec<String> {
    let here = here.canonicalize().unwrap();
    let all = fs::read_to_string("/proc/self/mounts").unwrap();
    let below = |line: &&str| line.contains(here.to_str().unwrap());
    all.lines().filter(below).map(str::to_owned).collect()
}

/// Asserts that a directory is empty, and that nothing is mounted below it.
pub fn assert_nothing_is_left(here: &Path) {
    assert_eq!(mounts(here), Vec::<String>::new());
    assert_eq!(names(here), Vec::<OsString>::new());
}

/// The contenders of a cell.
pub fn rows(cell: &Value) -> &Vec<Value> {
    cell["contenders"].as_array().unwrap()
}

/// The contender of this name.
pub fn row<'a>(cell: &'a Value, name: &str) -> &'a Value {
    let found = rows(cell).iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {cell}"))
}

/// The names of the contenders of a cell.
pub fn contenders(cell: &Value) -> Vec<&str> {
    let names = rows(cell).iter().map(|row| row["name"].as_str().unwrap());
    names.collect()
}

/// Waits until a condition holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A directory on a disk: the system's temporary directory may be in memory.
pub fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The backing files of loop devices, and the zram devices.
pub fn devices() -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/sys/block").unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        all.extend(fs::read_to_string(entry.path().join("loop/backing_file")).ok());
        all.extend(name.starts_with("zram").then_some(name));
    }
    all
}

/// The number of loop devices whose files are below this directory.
pub fn devices_below(dir: &Path) -> usize {
    let below = dir.to_str().unwrap();
    let all = devices().into_iter();
    all.filter(|backing| backing.contains(below)).count()
}

/// A copy of the program, run by a user who owns no file.
pub fn unprivileged<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> (Command, TempDir) {
    const NOBODY: u32 = 65534;
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("nowait-bench");
    slowdisk::copy_program(PROGRAM, &copy).unwrap();
    let mut command = Command::new(copy);
    command.args(words).uid(NOBODY).gid(NOBODY).current_dir("/");
    (command, dir)
}

/// nowait's drop-in for POSIX AIO. Tests lie in target/PROFILE/deps, and so do the libraries that they
/// depend on.
pub fn drop_in() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.with_file_name("libnowait_aio.so")
}

/// Returns true, and says so, if one of these programs is missing. With NOWAIT_TEST_ALL=1 that is a
/// failure.
pub fn is_missing(programs: &[&str]) -> bool {
    let starts = |program: &&&str| Command::new(program).arg("--version").output().is_err();
    let missing: Vec<_> = programs.iter().filter(starts).collect();
    if missing.is_empty() {
        return false;
    }
    assert!(
        std::env::var_os("NOWAIT_TEST_ALL").is_none(),
        "NOWAIT_TEST_ALL: needs {missing:?}"
    );
    eprintln!("skipped: needs {missing:?} (scripts/install-deps.sh)");
    true
}
