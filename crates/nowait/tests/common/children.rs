//! Child processes that run one test of this program again.
//!
//! A test that changes its process (limits, seccomp filters, user, working directory), forks, or counts
//! threads or descriptors runs its body in such a child, where no other test runs.

use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use test_support::limit::{LONG, ended};

/// The role of this process, if it is a child that [`in_child`] made.
pub fn role() -> Option<String> {
    std::env::var("NOWAIT_TEST_ROLE").ok()
}

/// Runs `body` in a child in which no other test runs.
pub fn alone(body: impl FnOnce()) {
    match role() {
        None => in_child("alone"),
        Some(_) => body(),
    }
}

/// Runs the calling test again in a child with this role.
///
/// # Panics
/// If the test fails there, or the child is killed or hangs.
pub fn in_child(role: &str) {
    in_child_by(Command::new(this_program()), role);
}

/// As [`in_child`], by a command that the caller has prepared (another user, variables).
pub fn in_child_by(mut command: Command, role: &str) {
    // The test harness names each test's thread after the test.
    let thread = std::thread::current();
    let test = thread.name().expect("the thread of a test");
    let output = rustix::fs::memfd_create("output", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let output = std::fs::File::from(output);
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env("NOWAIT_TEST_ROLE", role)
        .stdout(output.try_clone().unwrap())
        .stderr(output.try_clone().unwrap());
    let end = Instant::now() + LONG;
    let mut child = loop {
        match command.spawn() {
            Ok(child) => break child,
            // Another test has just forked: until its child calls execve(2), the child has the copy of
            // this program open for writing.
            Err(e) if e.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(e) => panic!("{command:?}: {e}"),
        }
    };
    let ended = ended(&mut child);
    let mut text = vec![0; output.metadata().unwrap().len() as usize];
    output.read_exact_at(&mut text, 0).unwrap();
    let text = String::from_utf8_lossy(&text);
    let is_success = ended.as_ref().is_ok_and(ExitStatus::success);
    assert!(is_success, "{test} as {role}: {ended:?}\n{text}");
    assert!(text.contains("1 passed"), "no test {test}\n{text}");
}

/// This test program.
pub fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}
