//! The program as its users run it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
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

/// The program with the words of a line, in a directory that also has its temporary files and mounts.
pub fn bench(here: &Path, line: &str) -> Command {
    let mut command = nowait_bench(line.split_whitespace());
    if line.starts_with("aio") && !line.contains("--library") {
        command.arg("--library").arg(drop_in());
    }
    command.current_dir(here).env("TMPDIR", here);
    command
}

/// The JSON of a run that succeeds, without a message on standard error.
pub fn report(here: &Path, line: &str) -> Value {
    run(bench(here, line).arg("--json")).done().json()
}

/// Asserts that a report has the shape of all areas, and these cells with these contenders: a line for each, with the
/// name of the cell, a colon, and the contenders. Each contender has this many rounds. Ratios need three.
pub fn assert_shape(report: &Value, area: &str, rounds: usize, cells: &str) {
    assert_eq!(
        (&report["area"], &report["interrupted"]),
        (&area.into(), &false.into())
    );
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert!(report["machine"]["kernel"].is_string() && report["machine"]["cores"].is_u64());
    assert_eq!(report["settings"]["rounds"], rounds);
    let cell = |cell: &Value| {
        format!(
            "{}: {}",
            cell["name"].as_str().unwrap(),
            contenders(cell).join(" ")
        )
    };
    let all = cells_of(report);
    let found: Vec<String> = all.iter().map(cell).collect();
    let lines = cells.lines().map(str::trim).filter(|line| !line.is_empty());
    assert_eq!(found, lines.collect::<Vec<_>>());
    for cell in all {
        for row in rows(cell) {
            assert_eq!(rounds_of(row).len(), rounds, "{row}");
            let figures = ["ops_per_s", "files_per_s"].map(|figure| row["median"][figure].as_f64());
            assert!(
                figures.into_iter().flatten().all(|figure| figure > 0.0),
                "{row}"
            );
            let peers = rows(cell).iter().filter(|peer| peer["name"] != row["name"]);
            for peer in peers.filter(|_| row["ours"] == true && rounds >= 3) {
                let pair = format!(
                    "{}/{}",
                    row["name"].as_str().unwrap(),
                    peer["name"].as_str().unwrap()
                );
                let ratio = &cell["ratios"][&pair];
                assert_eq!(ratio["rounds"], rounds, "{pair}: {cell}");
                let figures = ratio
                    .as_object()
                    .unwrap()
                    .values()
                    .filter(|figure| figure.is_object());
                for figure in figures {
                    let [low, median, high] =
                        ["low95", "median", "high95"].map(|key| figure[key].as_f64().unwrap());
                    assert!(low <= median && median <= high, "{ratio}");
                }
            }
        }
    }
    assert!(!report["tables"].as_array().unwrap().is_empty());
}

/// Asserts that the text of a run has these words. Its lines may break between words.
pub fn assert_says(said: &Said, words: &[&str]) {
    let text: Vec<&str> = said.out.split_whitespace().collect();
    let text = text.join(" ");
    for word in words {
        assert!(text.contains(word), "{word}: {said:?}");
    }
    assert!(
        said.out.lines().all(|line| line.chars().count() <= 110),
        "{said:?}"
    );
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

/// The names of the charts of a report.
pub fn charts(report: &Value) -> Vec<&str> {
    let charts = report["charts"].as_array().unwrap().iter();
    charts
        .map(|chart| chart["name"].as_str().unwrap())
        .collect()
}

/// The cells of a report.
pub fn cells_of(report: &Value) -> &Vec<Value> {
    report["cells"].as_array().unwrap()
}

/// The rounds of a contender.
pub fn rounds_of(row: &Value) -> &Vec<Value> {
    row["rounds"].as_array().unwrap()
}

/// Starts the program, and keeps its output.
pub fn spawned(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
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
    let end = Instant::now() + Duration::from_secs(300);
    while !holds() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A directory on a disk: the system's temporary directory may be in memory.
pub fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The number of loop devices whose files are below this directory.
pub fn devices_below(dir: &Path) -> usize {
    let below = dir.to_str().unwrap();
    let all = fs::read_dir("/sys/block")
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let backing =
        all.filter_map(|device| fs::read_to_string(device.join("loop/backing_file")).ok());
    backing.filter(|backing| backing.contains(below)).count()
}

/// Returns true if a condition for a test holds. With NOWAIT_TEST_ALL=1 it must.
pub fn has(what: &str, holds: bool) -> bool {
    assert!(
        holds || std::env::var_os("NOWAIT_TEST_ALL").is_none(),
        "NOWAIT_TEST_ALL: needs {what}"
    );
    if !holds {
        eprintln!("skipped: needs {what}");
    }
    holds
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

/// Returns true, and says so, if one of these programs is missing.
pub fn is_missing(programs: &[&str]) -> bool {
    let starts = |program: &&&str| Command::new(program).arg("--version").output().is_err();
    let missing: Vec<_> = programs.iter().filter(starts).collect();
    !has(
        &format!("{missing:?} (scripts/install-deps.sh)"),
        missing.is_empty(),
    )
}
