//! A turn that is a process: from its start to its end, with its time and its use of the processor.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::usage::Usage;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;

/// The result of a process.
pub struct Ended {
    /// The time from before its start until after its end.
    pub seconds: f64,
    pub used: Usage,
    /// Its output, if it was kept.
    pub said: String,
    /// True if it was killed, as the kernel does for want of memory.
    pub killed: bool,
}

/// Runs a process to its end; `None` after Ctrl-C, which also ends the children of the process. Its
/// output is kept, or goes to /dev/null.
pub fn run(command: Command, keep: bool, stop: &Stop) -> Result<Option<Ended>, Problem> {
    let ended = play(command, Stdio::null(), keep, None, stop)?;
    Ok(Some(ended).filter(|_| !stop.asked()))
}

/// Runs a process that reads `input`, and keeps its output. Fails if the process takes longer than
/// `longest`. After Ctrl-C the output is the part that the process has written until then.
pub fn talk(
    command: Command,
    input: &[u8],
    longest: Option<Duration>,
    stop: &Stop,
) -> Result<Ended, Problem> {
    let mut file = tempfile::tempfile().map_err(no_file)?;
    let written = file.write_all(input).and_then(|()| file.rewind());
    written.map_err(no_file)?;
    play(command, file.into(), true, longest, stop)
}

fn no_file(e: std::io::Error) -> Problem {
    let directory = std::env::temp_dir();
    Problem::Failed(format!(
        "cannot make a temporary file in {}: {e}; set TMPDIR to a directory that you may write to",
        directory.display()
    ))
}

fn play(
    mut command: Command,
    input: Stdio,
    keep: bool,
    longest: Option<Duration>,
    stop: &Stop,
) -> Result<Ended, Problem> {
    let program = command.get_program().to_string_lossy().into_owned();
    // The output goes to files: nothing reads it while the process runs, and a full pipe would
    // block it.
    let (mut out, mut err) = (
        tempfile::tempfile().map_err(no_file)?,
        tempfile::tempfile().map_err(no_file)?,
    );
    let handle = |file: &File| file.try_clone().map(Stdio::from).map_err(no_file);
    command
        .stdin(input)
        .stdout(if keep { handle(&out)? } else { Stdio::null() })
        .stderr(handle(&err)?)
        .process_group(0);
    let before = Usage::of_children();
    let start = Instant::now();
    let mut child = command
        .spawn()
        .map_err(|e| Problem::of(format_args!("cannot start {program}"), e))?;
    let late = longest.map(|longest| start + longest);
    let whole = wait(&child, late, stop);
    if !matches!(whole, Ok(true)) {
        // The process may have ended already.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    }
    let status = child.wait().map_err(|e| Problem::of(&program, e))?;
    let seconds = start.elapsed().as_secs_f64();
    let killed = status.signal() == Some(Signal::KILL.as_raw());
    if !whole? && !stop.asked() {
        return Err(Problem::Failed(format!("{program} took too long")));
    }
    if !(status.success() || killed || stop.asked()) {
        let why = text(&mut err);
        let why = why.lines().next().unwrap_or_default();
        return Err(Problem::Failed(format!(
            "{program} failed ({status}): {why}"
        )));
    }
    Ok(Ended {
        seconds,
        used: Usage::of_children() - before,
        said: text(&mut out),
        killed,
    })
}

/// Waits for the end of a process. Returns false after Ctrl-C, and if it is late.
fn wait(child: &Child, late: Option<Instant>, stop: &Stop) -> Result<bool, Problem> {
    let failed = |e| Problem::of("cannot wait for a process", e);
    let fd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).map_err(failed)?;
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    while !stop.asked() && late.is_none_or(|late| Instant::now() < late) {
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
    // Output that cannot be read is treated as empty.
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}
