//! The process in which one pressure is measured, as its parent sees it: this program again, told
//! what to do on its standard input, a JSON value a line, and answering the same way.
//!
//! A process of its own can be put into a cgroup, may be killed for want of memory, and leaves
//! nothing of what it took. It is killed with its parent, and before the parent lets go of it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::cell::{Outcome, Turn};
use super::pressure::Pressure;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;

/// What the child is told at first.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    pub pressure: Pressure,
    /// Bytes of the file.
    pub size: u64,
    /// Seconds that a turn is measured.
    pub seconds: f64,
    pub seed: u64,
    /// Without a cgroup: the most bytes that its pressure thread may take.
    pub most: Option<u64>,
    /// What to do, in this order, and the number of each.
    pub turns: Vec<(usize, Turn)>,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// The file is in its memory; it goes on when it is told to by an empty line.
    Warm,
    /// A turn begins.
    Now(usize),
    /// The result of a turn.
    Done(usize, Outcome),
    /// What a reader of the report should know.
    Note(String),
    /// Why it can't go on.
    Failed(String),
}

/// A running child; it is killed when this is dropped.
pub struct Child {
    process: std::process::Child,
    orders: ChildStdin,
    replies: Receiver<Reply>,
}

/// What a parent hears of it.
pub enum Word {
    Said(Reply),
    /// It has done all.
    Ended,
    /// By a signal, as the kernel does for want of memory.
    Killed,
}

/// How often is looked for Ctrl-C while it works.
const LOOK: Duration = Duration::from_millis(50);

impl Child {
    /// Starts it; it waits for its orders.
    pub fn start(file: &Path) -> Result<Child, Problem> {
        let failed = |e| Problem::of("cannot start this program again", e);
        let mut process = Command::new("/proc/self/exe")
            .args(["race-inside"])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A terminal's Ctrl-C is for the parent, which ends it.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let (Some(orders), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Problem::Failed("a process without pipes".into()));
        };
        let (sender, replies) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let reply = serde_json::from_str(&line)
                    .unwrap_or_else(|e| Reply::Failed(format!("{e}: {line}")));
                if sender.send(reply).is_err() {
                    break;
                }
            }
        });
        Ok(Child {
            process,
            orders,
            replies,
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Tells it something.
    pub fn tell(&mut self, line: &str) -> Result<(), Problem> {
        writeln!(self.orders, "{line}")
            .and_then(|()| self.orders.flush())
            .map_err(ended)
    }

    /// Its next word, or how it ended.
    ///
    /// # Errors
    /// If it failed; [`Problem::Interrupted`] if it is to stop.
    pub fn next(&mut self, stop: &Stop) -> Result<Word, Problem> {
        loop {
            if stop.asked() {
                return Err(Problem::Interrupted);
            }
            return match self.replies.recv_timeout(LOOK) {
                Ok(Reply::Failed(why)) => Err(Problem::Failed(why)),
                Ok(reply) => Ok(Word::Said(reply)),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => match self.process.wait() {
                    Ok(status) if status.success() => Ok(Word::Ended),
                    Ok(status) if status.signal() == Some(Signal::KILL.as_raw()) => {
                        Ok(Word::Killed)
                    }
                    Ok(status) => Err(ended(status)),
                    Err(e) => Err(ended(e)),
                },
            };
        }
    }
}

fn ended(how: impl std::fmt::Display) -> Problem {
    Problem::of("the process under pressure has ended before its time", how)
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
