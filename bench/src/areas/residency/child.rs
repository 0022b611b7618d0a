//! The process in which one pressure is measured, as its parent sees it: this program again. It
//! gets orders on standard input and replies on standard output, one JSON value per line.
//!
//! A separate process can be put into a cgroup, may be killed for lack of memory, and frees all its
//! memory when it ends. It is killed when it is dropped, and when its parent dies.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cell::Turn;
use super::pressure::Pressure;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;

/// The orders of a child: its first line of input.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    pub pressure: Pressure,
    /// Bytes of the file.
    pub size: u64,
    /// The length of a turn in seconds.
    pub seconds: f64,
    pub seed: u64,
    /// The most bytes that the pressure thread may take; `None` with a cgroup.
    pub most: Option<u64>,
    /// The turns in their order, each with its number.
    pub turns: Vec<(usize, Turn)>,
}

/// A reply of the child.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// The child has read the file, and waits for an empty line.
    Warm,
    /// A turn begins.
    Now(usize),
    /// The result of a turn.
    Done(usize, Value),
    /// A note for the report.
    Note(String),
    /// The reason why the child cannot go on.
    Failed(String),
}

/// A running child; it is killed when this is dropped.
pub struct Child {
    process: std::process::Child,
    orders: ChildStdin,
    replies: Receiver<Reply>,
}

/// A message of the child, or its end.
pub enum Message {
    Said(Reply),
    /// The child has done all turns.
    Ended,
    /// The child was killed by a signal, for example for lack of memory.
    Killed,
}

/// The interval at which a waiting parent checks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

impl Child {
    /// Starts a child. It waits for its orders.
    pub fn start(file: &Path) -> Result<Child, Problem> {
        let failed = |e| Problem::of("cannot start this program again", e);
        let mut process = Command::new("/proc/self/exe")
            .args(["race-inside"])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The terminal sends Ctrl-C to the parent alone. The parent ends the child.
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

    /// The process ID.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends a line to the child.
    pub fn tell(&mut self, line: &str) -> Result<(), Problem> {
        writeln!(self.orders, "{line}")
            .and_then(|()| self.orders.flush())
            .map_err(ended)
    }

    /// Waits for the next reply, or for the end of the child.
    ///
    /// # Errors
    /// If the child failed; [`Problem::Interrupted`] after Ctrl-C.
    pub fn next(&mut self, stop: &Stop) -> Result<Message, Problem> {
        loop {
            if stop.asked() {
                return Err(Problem::Interrupted);
            }
            return match self.replies.recv_timeout(LOOK) {
                Ok(Reply::Failed(why)) => Err(Problem::Failed(why)),
                Ok(reply) => Ok(Message::Said(reply)),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => match self.process.wait() {
                    Ok(status) if status.success() => Ok(Message::Ended),
                    Ok(status) if status.signal() == Some(Signal::KILL.as_raw()) => {
                        Ok(Message::Killed)
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
