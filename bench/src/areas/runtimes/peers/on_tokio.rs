//! A tokio runtime with two workers, the tasks of a turn on it, and a tick beside them.

use std::future::Future;
use std::io;
use std::os::fd::AsFd;

use tokio::io::unix::AsyncFd;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::areas::runtimes::gate::Gate;
use crate::areas::runtimes::tick::Tick;

/// Runs a turn: `task` makes each of its tasks.
pub fn run<F>(gate: &'static Gate, task: impl Fn(u64) -> io::Result<F>) -> io::Result<()>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(gate.turn.workers()).enable_io();
    // Its tasks have a ring only where the runtime has. (Without the cfg `tokio_unstable` there is no
    // such method: see Cargo.toml.)
    #[cfg(feature = "tokio-ring")]
    builder.enable_io_uring();
    let runtime = builder.build()?;
    let tick = gate.tick()?;
    runtime.block_on(async {
        tokio::spawn(ticks(tick));
        let mut tasks = JoinSet::new();
        for of in 0..gate.tasks() {
            tasks.spawn(task(of)?);
        }
        while let Some(done) = tasks.join_next().await {
            done.map_err(io::Error::other)??;
        }
        Ok(())
    })
}

/// Serves the timer for as long as the runtime is there.
pub async fn ticks(tick: &'static Tick) -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe, for types that change their descriptor; this one can't"
    )]
    let timer = AsyncFd::new(tick.as_fd())?;
    loop {
        let mut ready = timer.readable().await?;
        // Not fired yet: it is waited for again.
        let _ = ready.try_io(|_| tick.serve());
    }
}
