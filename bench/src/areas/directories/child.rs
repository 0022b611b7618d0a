//! One turn: a process from its start to its end, with what it used.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::harness::usage::Usage;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;

/// What came of a process.
pub struct Ended {
    /// From before it was started until it had ended.
    pub seconds: f64,
    pub used: Usage,
    /// What it printed, where that was to be kept.
    pub said: String,
}

/// Runs it to its end; `None` if somebody has asked to stop. What it prints is kept, or goes to
/// /dev/null.
pub fn run(mut command: Command, keep: bool, stop: &Stop) -> Result<Option<Ended>, Problem> {
    let program = command.get_program().to_string_lossy().into_owned();
    let kept = |e| Problem::of("cannot make a temporary file", e);
    // Files, since nobody reads while it runs, and a pipe has an end.
    let (mut out, mut err) = (
        tempfile::tempfile().map_err(kept)?,
        tempfile::tempfile().map_err(kept)?,
    );
    let handle = |file: &File| file.try_clone().map(Stdio::from).map_err(kept);
    command
        .stdin(Stdio::null())
        .stdout(if keep { handle(&out)? } else { Stdio::null() })
        .stderr(handle(&err)?);
    let before = Usage::of_children();
    let start = Instant::now();
    let mut child = command
        .spawn()
        .map_err(|e| Problem::of(format_args!("cannot start {program}"), e))?;
    let whole = wait(&child, stop);
    if !matches!(whole, Ok(true)) {
        // It may have ended by itself: a Ctrl-C at a terminal reaches it too.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|e| Problem::of(&program, e))?;
    let seconds = start.elapsed().as_secs_f64();
    if !whole? || stop.asked() {
        return Ok(None);
    }
    if !status.success() {
        let why = text(&mut err);
        let why = why.lines().next().unwrap_or_default();
        return Err(Problem::Failed(format!(
            "{program} failed ({status}): {why}"
        )));
    }
    Ok(Some(Ended {
        seconds,
        used: Usage::of_children() - before,
        said: text(&mut out),
    }))
}

/// Waits for its end; says no if somebody has asked to stop before.
fn wait(child: &Child, stop: &Stop) -> Result<bool, Problem> {
    let failed = |e| Problem::of("cannot wait for a process", e);
    let fd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).map_err(failed)?;
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    while !stop.asked() {
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&moment)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(e) => return Err(failed(e)),
        }
    }
    Ok(false)
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    // What can't be read back was nothing.
    let _ = file
        .seek(SeekFrom::Start(0))
        .and_then(|_| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}
