//! The program as its users run it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The program's file.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_nowait-bench");

/// The program with these words.
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

    /// Everything was done, without a message on standard error.
    pub fn done(self) -> Said {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{self:?}");
        self
    }

    /// Something could not be done.
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

/// A directory on a disk: the system's temporary directory may lie in memory.
pub fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A copy of the program, run by a user who owns no file.
pub fn unprivileged<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> (Command, TempDir) {
    const NOBODY: u32 = 65534;
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("nowait-bench");
    fs::copy(PROGRAM, &copy).unwrap();
    let mut command = Command::new(copy);
    command.args(words).uid(NOBODY).gid(NOBODY).current_dir("/");
    (command, dir)
}
