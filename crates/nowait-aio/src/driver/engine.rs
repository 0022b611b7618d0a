//! The engine of the driver: a `LocalEngine`, with a limit on the operations that it has at once.

use nowait::engine::{Backend, LocalEngine, Options, Wait};
use nowait::op::Op;
use nowait::read::NowaitPolicy;
use rustix::io::Errno;

use crate::driver::poller::Poller;
use crate::request::Outcome;

/// The number of operations that the engine has at once on a ring. Further requests wait in their
/// lanes, where they can be cancelled.
const MAX_OPS_ON_RING: usize = 256;
/// The number on threads: that of the workers.
const MAX_OPS_ON_THREADS: usize = 64;

pub struct Engine {
    engine: LocalEngine,
    /// The number of operations that the engine may have.
    capacity: usize,
    in_flight: usize,
    /// Operations for the next `submit`.
    ops: Vec<Op>,
    has_completions: bool,
}

/// The errno of an error of the engine.
fn errno_of(error: &nowait::Error) -> Errno {
    error.errno().map_or(Errno::INVAL, Errno::from_raw_os_error)
}

impl Engine {
    /// Makes the engine, in the descriptor table of the calling thread.
    pub fn new(poller: &Poller) -> Result<Engine, Errno> {
        // The caller has tried the page cache already.
        let options = Options::new()
            .depth(MAX_OPS_ON_RING)
            .workers(MAX_OPS_ON_THREADS)
            .nowait_policy(NowaitPolicy::Never);
        let mut engine = options.build_local().map_err(|e| errno_of(&e))?;
        let capacity = match engine.backend() {
            Backend::Uring => MAX_OPS_ON_RING,
            Backend::Threads => MAX_OPS_ON_THREADS,
        };
        poller.add_engine(engine.event_fd().map_err(|e| errno_of(&e))?)?;
        Ok(Engine {
            engine,
            capacity,
            in_flight: 0,
            ops: Vec::new(),
            has_completions: false,
        })
    }

    pub fn has_room(&self) -> bool {
        self.in_flight < self.capacity
    }

    /// The number of operations that one file may have in the engine.
    pub fn max_per_file(&self) -> usize {
        self.capacity / 2
    }

    /// Adds an operation to the next `submit`. It counts as in flight.
    pub fn push(&mut self, op: Op, user_data: usize) {
        self.ops.push(op.user_data(user_data as u64));
        self.in_flight += 1;
    }

    pub fn submit(&mut self) {
        if !self.ops.is_empty() {
            self.engine.submit_batch(&mut self.ops);
        }
    }

    /// The engine has reported completions by its eventfd.
    pub fn set_has_completions(&mut self) {
        self.has_completions = true;
    }

    /// Takes the results of completed operations, each with its `user_data`. Empty if the engine
    /// has reported no completions since the last call.
    pub fn reap(&mut self) -> Vec<(usize, Outcome)> {
        let mut completions = Vec::new();
        if std::mem::take(&mut self.has_completions) {
            let _ = self.engine.reap(&mut completions, Wait::No);
        }
        self.in_flight -= completions.len();
        let outcomes = completions.into_iter().map(|completion| {
            let user_data = completion.op.get_user_data() as usize;
            let outcome = completion.result.map_err(|e| errno_of(&e));
            // The operation is dropped here, and with it its reference to the open file.
            (user_data, outcome)
        });
        outcomes.collect()
    }
}
