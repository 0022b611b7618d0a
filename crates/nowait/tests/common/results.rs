//! The results of completions: errors and buffers.
#![allow(unsafe_code, reason = "a buffer type of the tests")]

use std::time::Duration;

use nowait::buffer::{Buffer, PoolBuffer, UninitSlice};
use nowait::engine::Wait;
use nowait::op::{Kind, Op};
use nowait::{Completion, ErrorKind, IoBufMut};

use super::completions::finish;
use super::drive::{Drive, name};

/// A pool's buffer that knows its length, like a vector.
pub struct Grown {
    pub buffer: PoolBuffer,
    pub capacity: usize,
    pub len: usize,
}

impl IoBufMut for Grown {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        self.len = 0;
        self.buffer.as_uninit().first(self.capacity)
    }

    unsafe fn set_filled(&mut self, n: usize) {
        self.len = n;
    }
}

/// Submits one operation as a batch of one: on a ring only the kernel tries it.
pub fn one_in_batch(engine: &mut dyn Drive, op: impl Into<Op>) -> Completion {
    let mut ops = vec![op.into()];
    assert_eq!(engine.submit_batch(&mut ops), 1);
    finish(engine, 1).remove(0)
}

/// Checks that nothing can be reaped for a while, long enough to see a wrong completion.
pub fn nothing_for_a_while(engine: &mut dyn Drive) {
    let mut out = Vec::new();
    let n = engine
        .reap(&mut out, Wait::UpTo(Duration::from_millis(50)))
        .unwrap();
    assert_eq!(n, 0, "{}: {out:?}", name(engine));
}

/// The kind of a completion's error.
pub fn kind(completion: &Completion) -> ErrorKind {
    match &completion.result {
        Err(e) => e.kind(),
        Ok(n) => panic!("no error but {n}"),
    }
}

/// The buffer of a read, as a vector.
pub fn bytes_of(completion: Completion) -> Vec<u8> {
    vector_of(completion.op.into_buffer().expect("it was a read"))
}

/// A vector, or a [`Grown`], as a vector.
pub fn vector_of(buffer: Buffer) -> Vec<u8> {
    match nowait::buffer::downcast::<Vec<u8>>(buffer) {
        Ok(bytes) => bytes,
        Err(buffer) => {
            let Ok(Grown {
                buffer,
                capacity,
                len,
            }) = nowait::buffer::downcast(buffer)
            else {
                panic!("neither")
            };
            let mut bytes = Vec::with_capacity(capacity);
            bytes.extend_from_slice(&buffer[..len]);
            bytes
        }
    }
}

/// The bytes of a write, as a vector.
pub fn source_of(completion: Completion) -> Vec<u8> {
    let source = completion.op.into_source().expect("it was a write");
    nowait::buffer::downcast_source::<Vec<u8>>(source)
        .unwrap_or_else(|other| other.bytes().to_vec())
}

/// The buffers of a readv, as vectors.
pub fn pieces_of(completion: Completion) -> Vec<Vec<u8>> {
    let Kind::Readv(op) = completion.op.into_kind() else {
        panic!("it was no readv")
    };
    op.into_buffers()
        .into_iter()
        .map(|b| nowait::buffer::downcast::<Vec<u8>>(b).expect("its buffers were vectors"))
        .collect()
}
