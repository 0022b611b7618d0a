//! A tokio runtime with two workers, which runs the tasks of a turn and a tick.

use std::future::Future;
use std::io;

use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::areas::runtimes::gate::Gate;
use crate::harness::tick;

/// Runs a turn. `task` makes each of its tasks.
pub fn run<F>(gate: &'static Gate, task: impl Fn(u64) -> io::Result<F>) -> io::Result<()>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(gate.turn.workers()).enable_io();
    // tokio::fs uses a ring only if the runtime enables it. The method exists only with the cfg
    // `tokio_unstable`: see Cargo.toml.
    #[cfg(feature = "tokio-ring")]
    builder.enable_io_uring();
    let runtime = builder.build()?;
    let timer = gate.tick()?;
    runtime.block_on(async {
        tokio::spawn(tick::on_tokio(timer));
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
