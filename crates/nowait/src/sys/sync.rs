//! Locks, condition variables, atomics and threads: those of std, or with `--cfg shuttle` those of
//! the model checker shuttle, which runs a test with many schedules (`make model`).
//!
//! A module with a concurrency model takes them only from here.

#[cfg(not(shuttle))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(shuttle))]
pub(crate) use std::thread::yield_now;

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(shuttle)]
pub(crate) use shuttle::thread::yield_now;

/// Atomics whose orderings matter: those of std, or with `--cfg nowait_loom` those of the model
/// checker loom, which tries reorderings that weaker processors allow.
pub(crate) mod ordered {
    #[cfg(nowait_loom)]
    pub(crate) use loom::sync::atomic::{AtomicBool, fence};
    #[cfg(not(nowait_loom))]
    pub(crate) use std::sync::atomic::{AtomicBool, fence};
}

use std::time::Duration;

/// Locks a mutex. A panic does not poison it: code that holds a lock keeps the data consistent at
/// every point where it could panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Waits for a notification.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(|e| e.into_inner())
}

/// Waits for a notification, but at most for the given time. Returns true if the time has passed.
/// `guard` is a guard of `mutex`.
#[cfg(not(shuttle))]
pub(crate) fn wait_timeout<'a, T>(
    condvar: &Condvar,
    _mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> (MutexGuard<'a, T>, bool) {
    let (guard, timeout) = condvar
        .wait_timeout(guard, time)
        .unwrap_or_else(|e| e.into_inner());
    (guard, timeout.timed_out())
}

/// The model has no clock: the time passes immediately, or not before the notification.
#[cfg(shuttle)]
pub(crate) fn wait_timeout<'a, T>(
    condvar: &Condvar,
    mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    _: Duration,
) -> (MutexGuard<'a, T>, bool) {
    use shuttle::rand::Rng;
    if shuttle::rand::thread_rng().gen_bool(0.5) {
        (wait(condvar, guard), false)
    } else {
        drop(guard);
        yield_now();
        (lock(mutex), true)
    }
}

/// Starts a thread of an engine, with all signals blocked. Miri has no signals, and only the
/// standard library can set the attributes of a thread there.
pub(crate) fn spawn(
    name: &'static std::ffi::CStr,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    #[cfg(not(any(shuttle, miri)))]
    return nowait_residency::sys::spawn::spawn_without_signals(name, body);
    #[cfg(shuttle)]
    use shuttle::thread::Builder;
    #[cfg(all(miri, not(shuttle)))]
    use std::thread::Builder;
    #[cfg(any(shuttle, miri))]
    return Builder::new()
        .name(name.to_string_lossy().into_owned())
        .spawn(body)
        .map(drop);
}
