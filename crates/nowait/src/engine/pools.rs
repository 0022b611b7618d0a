//! All workers of one engine: a pool for each class of operations.

use std::sync::Arc;

use super::backend::Backend;
use super::class::Class;
use super::completion::Ticket;
use super::completion_target::DroppedCompletion;
use super::core::Core;
use super::options::Options;
use super::request::Request;
use super::workers::Pool;
use crate::error::{ErrorKind, Result};

/// All workers of one engine.
pub(crate) struct Pools([Pool; Class::ALL.len()]);

impl Pools {
    pub(crate) fn new(core: &Arc<Core>, options: &Options) -> Pools {
        Pools(Class::ALL.map(|class| {
            let (limit, spare) = match class {
                Class::File => (options.workers, options.spare_worker),
                Class::Call | Class::Unbounded => (options.blocking_workers, false),
            };
            Pool::new(core, class, limit, spare)
        }))
    }

    /// Starts the first worker if the backend is threads, to find out if threads can be started at
    /// all, or if it is to be the spare one.
    pub(crate) fn start(&self, options: &Options, backend: Backend) -> Result<()> {
        if options.spare_worker || backend == Backend::Threads {
            self.of(Class::File).start()?;
        }
        Ok(())
    }

    /// The pool of a class.
    pub(crate) fn of(&self, class: Class) -> &Pool {
        &self.0[class as usize]
    }

    /// Has a worker carry out an operation. If no thread can be started for its class, a worker of
    /// another class does it.
    pub(crate) fn push(&self, request: Request) {
        let own = Class::of(&request.op.body.kind);
        let mut left = Some(request);
        for class in [own, Class::File, Class::Call, Class::Unbounded] {
            match left.take() {
                Some(request) => left = self.of(class).push(request),
                None => return,
            }
        }
        if let Some(stranded) = left {
            self.of(own).refuse(stranded);
        }
    }

    /// Has a worker drop a completion. Its permit does not wait for operations that may wait longer: those of its own
    /// class do not, but for operations without a bound.
    pub(crate) fn discard(&self, dropped: DroppedCompletion) {
        let class = match dropped.class() {
            Class::Unbounded => Class::Call,
            class => class,
        };
        self.of(class).discard(dropped);
    }

    /// Stops an operation that no worker has begun, or that can be stopped. Returns true if it was
    /// found. The library's own operations are not stopped.
    pub(crate) fn cancel(&self, ticket: Ticket, why: ErrorKind) -> bool {
        ticket != Ticket::AHEAD && self.0.iter().any(|pool| pool.cancel(ticket, why))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::op::{Call, Op};

    #[test]
    fn what_the_library_does_for_itself_is_not_cancelled() {
        let options = Options::new().blocking_workers(1);
        let core = Arc::new(Core::new(&options));
        let pools = Pools::new(&core, &options);
        let push = |call| pools.push(Request::ahead(&core, Op::from(call)).unwrap());
        let (go_on, waits) = mpsc::channel();
        push(Call::new(move || {
            waits.recv().unwrap();
            Ok(0)
        }));
        let (done, is_done) = mpsc::channel();
        push(Call::new(move || {
            done.send(()).unwrap();
            Ok(0)
        }));
        assert!(!pools.cancel(Ticket(0), ErrorKind::Cancelled));
        go_on.send(()).unwrap();
        assert!(is_done.recv().is_ok());
    }
}
