//! Engines of every kind: also rings with SQPOLL, and rings with registered files and buffers.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use nowait::buffer::{Buffer, BufferPool, PoolBuffer, Source};
use nowait::cost::Costs;
use nowait::engine::{Backend, Feature, FileSet, Options, Submit, Wait};
use nowait::op::Op;
use nowait::stats::Stats;
use nowait::support::Support;
use nowait::{Completion, Handle, IoBufExt, Ticket};

use super::backends::backends;
use super::drive::Drive;
use super::limit::Limit;
use super::results::Grown;

/// An engine that may have registered files and buffers.
pub struct AnyKind {
    engine: Box<dyn Drive>,
    registered: Option<(FileSet, BufferPool)>,
}

impl AnyKind {
    /// An engine without registered files and buffers.
    pub fn plain(engine: impl Drive + 'static) -> AnyKind {
        AnyKind {
            engine: Box::new(engine),
            registered: None,
        }
    }

    /// An engine whose files and buffers are registered.
    pub fn registered<E: Drive + 'static>(
        options: Options,
        build: impl Fn(&Options) -> nowait::Result<E>,
    ) -> AnyKind {
        let pool = BufferPool::new(64, 32 << 10).unwrap();
        let mut engine = build(&options.buffers(&pool)).unwrap();
        let set = engine.file_set(64).unwrap();
        AnyKind {
            engine: Box::new(engine),
            registered: Some((set, pool)),
        }
    }

    /// The same file, registered if this engine registers files.
    pub fn file(&mut self, plain: &Handle) -> Handle {
        match &self.registered {
            Some((set, _)) => set.insert(plain).unwrap(),
            None => plain.clone(),
        }
    }

    /// A buffer of the pool with at least this capacity.
    fn pooled(&self, capacity: usize) -> Option<PoolBuffer> {
        let (_, pool) = self.registered.as_ref()?;
        pool.take().filter(|buffer| buffer.len() >= capacity)
    }

    /// A buffer of this capacity that behaves like an empty vector.
    pub fn buffer(&mut self, capacity: usize) -> Buffer {
        match self.pooled(capacity) {
            Some(buffer) => Box::new(Grown {
                buffer,
                capacity,
                len: 0,
            }),
            None => Box::new(Vec::<u8>::with_capacity(capacity)),
        }
    }

    /// Bytes to write.
    pub fn source(&mut self, bytes: Vec<u8>) -> Source {
        match self.pooled(bytes.len()) {
            Some(mut buffer) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                Box::new(buffer.limit(bytes.len()))
            }
            None => Box::new(bytes),
        }
    }
}

impl Drive for AnyKind {
    fn is_local(&self) -> bool {
        self.engine.is_local()
    }
    fn submit(&mut self, op: Op) -> Submit {
        self.engine.submit(op)
    }
    fn submit_batch(&mut self, ops: &mut Vec<Op>) -> usize {
        self.engine.submit_batch(ops)
    }
    fn reap(&mut self, out: &mut Vec<Completion>, wait: Wait) -> nowait::Result<usize> {
        self.engine.reap(out, wait)
    }
    fn reap_at_most(
        &mut self,
        most: usize,
        out: &mut Vec<Completion>,
        wait: Wait,
    ) -> nowait::Result<usize> {
        self.engine.reap_at_most(most, out, wait)
    }
    fn cancel(&mut self, ticket: Ticket) {
        self.engine.cancel(ticket);
    }
    fn event_fd(&mut self) -> nowait::Result<BorrowedFd<'_>> {
        self.engine.event_fd()
    }
    fn file_set(&mut self, capacity: usize) -> nowait::Result<FileSet> {
        self.engine.file_set(capacity)
    }
    fn in_flight(&self) -> usize {
        self.engine.in_flight()
    }
    fn depth(&self) -> usize {
        self.engine.depth()
    }
    fn backend(&self) -> Backend {
        self.engine.backend()
    }
    fn why(&self) -> &str {
        self.engine.why()
    }
    fn support(&self, feature: Feature) -> Support {
        self.engine.support(feature)
    }
    fn stats(&self) -> Stats {
        self.engine.stats()
    }
    fn costs(&self) -> Costs {
        self.engine.costs()
    }
}

/// Runs a test on both engines and backends, and on rings of other kinds.
pub fn each_kind(options: Options, test: impl Fn(&mut AnyKind)) {
    for backend in backends() {
        plain(backend, &options, &test);
    }
    odd_rings(options, test);
}

/// Runs a test on both engines, without options for a kind of ring.
pub fn plain(backend: Backend, options: &Options, test: impl Fn(&mut AnyKind)) {
    let options = options.clone().backend(backend);
    {
        let _limit = Limit::new(format!("shared {backend}"));
        test(&mut AnyKind::plain(options.build().unwrap()));
    }
    let _limit = Limit::new(format!("local {backend}"));
    test(&mut AnyKind::plain(options.build_local().unwrap()));
}

/// Runs a test on rings with SQPOLL and on rings with registered files and buffers.
pub fn odd_rings(options: Options, test: impl Fn(&mut AnyKind)) {
    if backends()[0] == Backend::Threads {
        return;
    }
    let options = options.backend(Backend::Uring);
    let sqpoll = options.clone().sqpoll(Duration::from_millis(2));
    {
        let _limit = Limit::new("shared sqpoll".into());
        test(&mut AnyKind::plain(sqpoll.build().unwrap()));
    }
    {
        let _limit = Limit::new("local sqpoll".into());
        test(&mut AnyKind::plain(sqpoll.build_local().unwrap()));
    }
    {
        let _limit = Limit::new("shared fixed".into());
        test(&mut AnyKind::registered(options.clone(), Options::build));
    }
    let _limit = Limit::new("local fixed".into());
    test(&mut AnyKind::registered(options, Options::build_local));
}
