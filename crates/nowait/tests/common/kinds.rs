//! Engines of every kind: also rings with SQPOLL, and rings with registered files and buffers.

use std::time::Duration;

use nowait::buffer::{Buffer, BufferPool, Source};
use nowait::engine::{Backend, Engine, FileSet, LocalEngine, Options};
use nowait::{Handle, IoBufExt};

use super::backends::backends;
use super::drive::Drive;
use super::either::{Either, on_either};
use super::limit::Limit;
use super::results::Grown;

/// An engine that may have registered files and buffers.
pub trait AnyKind: Drive {
    /// The same file, registered if this engine registers files.
    fn file(&mut self, plain: &Handle) -> Handle {
        plain.clone()
    }

    /// A buffer of this capacity that behaves like an empty vector.
    fn buffer(&mut self, capacity: usize) -> Buffer {
        Box::new(Vec::<u8>::with_capacity(capacity))
    }

    /// Bytes to write.
    fn source(&mut self, bytes: Vec<u8>) -> Source {
        Box::new(bytes)
    }

    /// Slots for registered files.
    fn set(&mut self, capacity: usize) -> nowait::Result<FileSet> {
        on_either!(self.engine_mut(), file_set(capacity))
    }
}

impl AnyKind for Engine {}
impl AnyKind for LocalEngine {}

/// An engine whose files and buffers are registered.
pub struct Fixed<E> {
    engine: E,
    set: FileSet,
    pool: BufferPool,
}

impl<E: AnyKind> Fixed<E> {
    pub fn new(options: Options, build: impl Fn(&Options) -> nowait::Result<E>) -> Fixed<E> {
        let pool = BufferPool::new(64, 32 << 10).unwrap();
        let mut engine = build(&options.buffers(&pool)).unwrap();
        Fixed {
            set: engine.set(64).unwrap(),
            engine,
            pool,
        }
    }
}

impl<E: Drive> Drive for Fixed<E> {
    fn engine(&self) -> Either<&Engine, &LocalEngine> {
        self.engine.engine()
    }
    fn engine_mut(&mut self) -> Either<&mut Engine, &mut LocalEngine> {
        self.engine.engine_mut()
    }
}

impl<E: Drive> AnyKind for Fixed<E> {
    fn file(&mut self, plain: &Handle) -> Handle {
        self.set.insert(plain).unwrap()
    }
    fn buffer(&mut self, capacity: usize) -> Buffer {
        match self.pool.take().filter(|buffer| buffer.len() >= capacity) {
            Some(buffer) => Box::new(Grown {
                buffer,
                capacity,
                len: 0,
            }),
            None => Box::new(Vec::<u8>::with_capacity(capacity)),
        }
    }
    fn source(&mut self, bytes: Vec<u8>) -> Source {
        match self
            .pool
            .take()
            .filter(|buffer| buffer.len() >= bytes.len())
        {
            Some(mut buffer) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                Box::new(buffer.limit(bytes.len()))
            }
            None => Box::new(bytes),
        }
    }
    fn set(&mut self, _: usize) -> nowait::Result<FileSet> {
        Ok(self.set.clone())
    }
}

/// Runs a test on both engines and backends, and on rings of other kinds.
pub fn each_kind(options: Options, test: impl Fn(&mut dyn AnyKind)) {
    for backend in backends() {
        plain(backend, &options, &test);
    }
    odd_rings(options, test);
}

/// Runs a test on both engines, without options for a kind of ring.
pub fn plain(backend: Backend, options: &Options, test: impl Fn(&mut dyn AnyKind)) {
    let options = options.clone().backend(backend);
    {
        let _limit = Limit::new(format!("shared {backend}"));
        test(&mut options.build().unwrap());
    }
    let _limit = Limit::new(format!("local {backend}"));
    test(&mut options.build_local().unwrap());
}

/// Runs a test on rings with SQPOLL and on rings with registered files and buffers.
pub fn odd_rings(options: Options, test: impl Fn(&mut dyn AnyKind)) {
    if backends()[0] == Backend::Threads {
        return;
    }
    let options = options.backend(Backend::Uring);
    let sqpoll = options.clone().sqpoll(Duration::from_millis(2));
    {
        let _limit = Limit::new("shared sqpoll".into());
        test(&mut sqpoll.build().unwrap());
    }
    {
        let _limit = Limit::new("local sqpoll".into());
        test(&mut sqpoll.build_local().unwrap());
    }
    {
        let _limit = Limit::new("shared fixed".into());
        test(&mut Fixed::new(options.clone(), Options::build));
    }
    let _limit = Limit::new("local fixed".into());
    test(&mut Fixed::new(options, Options::build_local));
}
