//! The number of tasks (processes and threads) that this process may still create.

use rustix::process::{Resource, getrlimit, getuid};

use crate::cgroup::{Controller, Groups};
use crate::proc;

/// The number of tasks that this process may still create: by the `pids.max` of its control groups, and by
/// RLIMIT_NPROC (getrlimit(2)). It may be too low, since the tasks of all users count for RLIMIT_NPROC here. `None` without
/// a limit.
pub fn tasks_left() -> Option<u64> {
    let of_groups = Groups::of_this_process(Controller::Pids).tasks_left();
    of_groups.into_iter().chain(of_user()).min()
}

/// At least one of these threads, and otherwise at most a quarter of the tasks that may still be created: a
/// program beside this process needs the others.
///
/// ```
/// let threads = nowait_residency::tasks::threads_beside_program(8);
/// assert!((1..=8).contains(&threads));
/// ```
pub fn threads_beside_program(threads: usize) -> usize {
    threads_within(threads, tasks_left())
}

fn threads_within(threads: usize, left: Option<u64>) -> usize {
    const PART: u64 = 4;
    let most = left.map_or(threads as u64, |left| left / PART);
    threads.min((most as usize).max(1))
}

/// The number by RLIMIT_NPROC, which does not limit the tasks of root.
fn of_user() -> Option<u64> {
    let limit = getrlimit(Resource::Nproc).current?;
    let tasks = || all_tasks(&proc::read("/proc/loadavg"));
    (!getuid().is_root()).then(|| limit.saturating_sub(tasks().unwrap_or(u64::MAX)))
}

/// The number of all tasks in the contents of /proc/loadavg: `0.20 0.18 0.12 RUNNING/ALL PID`.
fn all_tasks(loadavg: &[u8]) -> Option<u64> {
    let running = loadavg.split(|byte| *byte == b' ').nth(3)?;
    proc::number(running.split(|byte| *byte == b'/').nth(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Uid;
    use rustix::process::{Rlimit, setrlimit};
    use rustix::thread::set_thread_uid;

    #[test]
    fn most_tasks_are_left_to_the_program() {
        let threads = [None, Some(1000), Some(40), Some(0)].map(|left| threads_within(32, left));
        assert_eq!(threads, [32, 32, 10, 1]);
    }

    #[test]
    fn a_user_has_a_limit_and_root_has_none() {
        if !getuid().is_root() {
            return;
        }
        let before = getrlimit(Resource::Nproc);
        let few = Rlimit {
            current: Some(1),
            maximum: before.maximum,
        };
        setrlimit(Resource::Nproc, few).unwrap();
        assert_eq!(of_user(), None);
        let of_another = std::thread::spawn(|| {
            // The user of this thread alone.
            set_thread_uid(Uid::from_raw(65534)).unwrap();
            of_user()
        });
        assert_eq!(of_another.join().unwrap(), Some(0));
        setrlimit(Resource::Nproc, before).unwrap();
    }

    #[test]
    fn all_tasks_are_counted() {
        assert_eq!(all_tasks(b"0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(all_tasks(b""), None);
        assert!(all_tasks(&proc::read("/proc/loadavg")) > Some(0));
    }
}
