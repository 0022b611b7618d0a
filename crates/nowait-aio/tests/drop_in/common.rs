//! Compiles C programs and runs them with and without the library.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use test_support::limit::LONG;

/// The library that this test was built with.
pub fn library() -> PathBuf {
    // Test programs and their dependencies are in target/PROFILE/deps.
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libnowait_aio.so");
    assert!(library.exists(), "{} does not exist", library.display());
    library
}

/// The AIO that a program is run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Under {
    Glibc,
    Uring,
    Threads,
}

pub const OURS: [Under; 2] = [Under::Uring, Under::Threads];

impl Under {
    /// Sets the environment of a command.
    pub fn prepare(self, command: &mut Command) {
        match self {
            Under::Glibc => {}
            Under::Uring | Under::Threads => {
                command.env("LD_PRELOAD", library());
                command.env("NOWAIT_AIO_OURS", "1");
                let backend = if self == Under::Uring {
                    "uring"
                } else {
                    "threads"
                };
                command.env("NOWAIT_BACKEND", backend);
            }
        }
    }
}

/// A compiled C program of tests/c.
pub struct Program {
    pub path: PathBuf,
    /// The working directory of its cases, which is removed with the program.
    directory: tempfile::TempDir,
}

impl Program {
    /// Compiles it. It is not linked with the library.
    pub fn compile(source: &str) -> Program {
        let directory = tempfile::Builder::new()
            .prefix("nowait-aio-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .unwrap();
        let path = directory.path().join("program");
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/c")
            .join(source);
        let compiled = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-pthread"])
            .arg("-Wno-nonnull")
            .arg("-o")
            .args([&path, &source])
            .output()
            .expect("a C compiler is needed: apt-get install gcc");
        assert!(
            compiled.status.success(),
            "{}",
            String::from_utf8_lossy(&compiled.stderr)
        );
        Program { path, directory }
    }

    /// The working directory of its cases.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The names of its cases.
    pub fn cases(&self) -> Vec<String> {
        let listed = Command::new(&self.path).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        listed.lines().map(str::to_owned).collect()
    }

    /// Runs one case. The error says how it failed.
    pub fn run(&self, case: &str, under: Under, env: &[(&str, &str)]) -> Result<(), String> {
        let mut command = Command::new(&self.path);
        command.arg(case).current_dir(self.directory.path());
        command.envs(env.iter().copied());
        under.prepare(&mut command);
        run(&mut command)
    }
}

/// Runs a command, and kills it if it hangs.
pub fn run(command: &mut Command) -> Result<(), String> {
    // A process group, so that its children can be killed with it.
    command.process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let end = Instant::now() + 2 * LONG;
    let mut hung = false;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            hung = true;
            let group = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match (hung, output.status.success(), output.status.signal()) {
        (true, ..) => Err(format!("hung {stderr}")),
        (_, true, _) => Ok(()),
        (_, _, Some(signal)) => Err(format!("signal {signal} {stderr}")),
        _ => Err(format!("{} {stderr}", output.status)),
    }
}

/// A case that may fail with glibc 2.36, and the reason.
pub type GlibcFailure = (&'static str, &'static str);

/// Runs every case of a program: with glibc, where it must pass unless it is in the list, and with the
/// library on both backends, where it must pass.
pub fn run_all(source: &str, glibc_failures: &[GlibcFailure], env: &[(&str, &str)]) {
    let program = Program::compile(source);
    let cases = program.cases();
    for (known, _) in glibc_failures {
        assert!(cases.iter().any(|case| case == known), "no case `{known}`");
    }
    let mut wrong = Vec::new();
    for case in &cases {
        if !glibc_failures.iter().any(|(known, _)| known == case)
            && let Err(why) = program.run(case, Under::Glibc, env)
        {
            wrong.push(format!("{case} under glibc, so the test is wrong: {why}"));
        }
        for under in OURS {
            if let Err(why) = program.run(case, under, env) {
                wrong.push(format!("{case} under {under:?}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{source}:\n{}", wrong.join("\n"));
}
