//! Ctrl-C: the first one asks the verb to stop and to print its results so far, the second one ends
//! the process.
//!
//! A thread takes the signals. The verb's own thread may wait for a device or a server that does
//! not answer, and would run no handler meanwhile. If it goes on waiting after the first signal,
//! the process ends.

use std::fs;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nowait_page_cache::LOOK;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::problem::{INTERRUPTED, Problem};

/// A request to stop the verb, by a signal. Clones share the request.
#[derive(Clone, Debug)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    request: nowait_page_cache::Stop,
}

impl Deref for Stop {
    type Target = nowait_page_cache::Stop;

    fn deref(&self) -> &nowait_page_cache::Stop {
        &self.request
    }
}

impl Default for Stop {
    fn default() -> Stop {
        let flag = Arc::<AtomicBool>::default();
        Stop {
            request: flag.clone().into(),
            flag,
        }
    }
}

/// The number of looks at a verb that waits, after which it is taken to wait for something that
/// does not answer.
const PATIENCE: u32 = 6;

impl Stop {
    /// Makes SIGINT and SIGTERM request a stop. A second signal ends the process, and so does the
    /// first one if the calling thread then waits in one call for longer than 0.12 s, other than to
    /// print. The signals are blocked in this thread.
    pub fn on_signals() -> Result<Stop, Problem> {
        let failed = |e: Errno| Problem::of("cannot catch Ctrl-C", e);
        let stop = Stop::default();
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let taken = SignalFd::with_flags(&signals, flags).map_err(failed)?;
        signals.thread_block().map_err(failed)?;
        let (asked, verb) = (stop.clone(), rustix::thread::gettid());
        let watch = move || asked.watch(&taken, verb);
        if thread::Builder::new()
            .name("signals".into())
            .spawn(watch)
            .is_ok()
        {
            return Ok(stop);
        }
        signals.thread_unblock().map_err(failed)?;
        Stop::by_handlers()
    }

    /// Makes SIGINT and SIGTERM request a stop. A second signal ends the process. The program may
    /// wait as long as it likes.
    pub fn by_handlers() -> Result<Stop, Problem> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the shutdown must check the flag before this signal sets it.
            flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), stop.flag.clone())
                .and_then(|_| flag::register(signal, stop.flag.clone()))
                .map_err(|e| Problem::of("cannot catch Ctrl-C", e))?;
        }
        Ok(stop)
    }

    /// Takes the signals, and ends the process after the second one or if the verb's thread does
    /// not go on.
    fn watch(&self, signals: &SignalFd, verb: rustix::thread::Pid) {
        let next = |time: Option<Timespec>| {
            // After an error the signals are looked at.
            let _ = poll(
                &mut [PollFd::new(&signals.as_fd(), PollFlags::IN)],
                time.as_ref(),
            );
            matches!(signals.read_signal(), Ok(Some(_)))
        };
        while !next(None) {}
        self.request.request();
        let (mut wait, mut looks) = (None, 0);
        while looks < PATIENCE && !next(Timespec::try_from(LOOK).ok()) {
            let now = Wait::of(verb);
            looks = if now.is_some() && now == wait {
                looks + 1
            } else {
                0
            };
            wait = now;
        }
        low_level::exit(INTERRUPTED.into());
    }
}

/// A system call in which a thread waits.
#[derive(Debug, PartialEq, Eq)]
struct Wait {
    /// The call and its arguments, as in /proc/PID/syscall.
    call: String,
    /// The number of times that the thread has slept, as in /proc/PID/status.
    sleeps: String,
}

impl Wait {
    /// `None` if the thread runs, or prints: the reader may be slow.
    fn of(thread: rustix::thread::Pid) -> Option<Wait> {
        let file = |name| fs::read_to_string(format!("/proc/self/task/{thread}/{name}"));
        let call = file("syscall").ok()?;
        let mut words = call.split_whitespace();
        let number: i64 = words.next()?.parse().ok()?;
        let is_write = [libc::SYS_write, libc::SYS_writev].contains(&number);
        if is_write && matches!(words.next(), Some("0x1" | "0x2")) {
            return None;
        }
        let status = file("status").ok()?;
        let sleeps = status
            .lines()
            .find(|line| line.starts_with("voluntary_ctxt"))?;
        let sleeps = sleeps.to_owned();
        Some(Wait { call, sleeps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_wait_is_the_same_until_the_thread_goes_on() {
        let (mut ours, mut its) = UnixStream::pair().unwrap();
        let (to, thread) = std::sync::mpsc::channel();
        let reader = thread::spawn(move || {
            to.send(rustix::thread::gettid()).unwrap();
            its.read_exact(&mut [0; 2]).unwrap();
        });
        let thread = thread.recv().unwrap();
        let wait = || {
            loop {
                let wait = Wait::of(thread);
                std::thread::sleep(LOOK);
                if wait.is_some() && wait == Wait::of(thread) {
                    return wait;
                }
            }
        };
        let first = wait();
        ours.write_all(&[0]).unwrap();
        assert_ne!(wait(), first);
        ours.write_all(&[0]).unwrap();
        reader.join().unwrap();
        assert_eq!(Wait::of(thread), None);
    }
}
