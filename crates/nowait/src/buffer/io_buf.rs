//! The buffer traits, and the types of the standard library that implement them.
#![allow(unsafe_code)]

use std::any::Any;

use crate::space::Space;

/// An owned buffer that can be written out. Give it to [`File::write_at`](crate::File::write_at);
/// it comes back with the result.
pub trait IoBuf: Any + Send {
    /// The bytes to write. Asked for once, when the operation is made; a future that first tries
    /// the write in the caller asks before that as well.
    fn bytes(&self) -> &[u8];
}

/// An owned buffer that can be read into. Give it to [`File::read_at`](crate::File::read_at); it
/// comes back with the result, on every path.
///
/// Arrays are no such buffers: an array is copied into the read, and its bytes would be lost with
/// the copy. A boxed array is one.
/// ```compile_fail,E0277
/// let file = nowait::File::blocking_open("Cargo.toml")?;
/// let mut buffer = [0; 4];
/// let read = pollster::block_on(file.read_at(buffer, 0));
/// # Ok::<(), nowait::Error>(())
/// ```
/// ```
/// let file = nowait::File::blocking_open("Cargo.toml")?;
/// let read = pollster::block_on(file.read_at(Box::new([0; 4]), 0));
/// assert_eq!(*read.buf, *b"[pac");
/// # Ok::<(), nowait::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no buffer that can be read into",
    label = "must own memory that does not move, such as `Vec<u8>`, `Box<[u8]>` or `Box<[u8; N]>`",
    note = "an array is copied into the read: box it, as in `Box::new([0; 4096])`, or use `vec![0; 4096]`"
)]
pub trait IoBufMut: Any + Send {
    /// The memory to fill, from its start. What a growable buffer held before is forgotten.
    ///
    /// Asked for once, when the operation is made; a future that first tries the read in the caller
    /// asks before that as well.
    fn space(&mut self) -> Space<'_>;

    /// Told at most once, after a read, when the buffer is given back: the first `n` bytes of
    /// [`space`](IoBufMut::space) are now file data.
    ///
    /// # Safety
    /// Each of those bytes was initialised through memory that `space` returned since the last
    /// `set_filled`. If `space` was called twice, the first of them may have been initialised
    /// through what the first call returned, and the others through what the last one did.
    unsafe fn set_filled(&mut self, n: usize);
}

impl IoBuf for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Filled from its start up to its capacity; its length becomes what was read.
/// `Vec::with_capacity(n)` and `vec![0; n]` are both `n` bytes of room.
impl IoBufMut for Vec<u8> {
    fn space(&mut self) -> Space<'_> {
        self.clear();
        Space::Uninit(self.spare_capacity_mut())
    }

    unsafe fn set_filled(&mut self, n: usize) {
        // SAFETY: the caller initialised `n` bytes from the start of the spare capacity of an
        // empty vector.
        unsafe { self.set_len(n) }
    }
}

impl IoBuf for Box<[u8]> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl IoBufMut for Box<[u8]> {
    fn space(&mut self) -> Space<'_> {
        Space::Init(self)
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

impl<const N: usize> IoBuf for [u8; N] {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl<const N: usize> IoBuf for Box<[u8; N]> {
    fn bytes(&self) -> &[u8] {
        &**self
    }
}

impl<const N: usize> IoBufMut for Box<[u8; N]> {
    fn space(&mut self) -> Space<'_> {
        Space::Init(&mut **self)
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

impl IoBuf for &'static [u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl IoBuf for &'static str {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl IoBuf for String {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

#[cfg(feature = "bytes")]
impl IoBuf for bytes::Bytes {
    fn bytes(&self) -> &[u8] {
        self
    }
}

#[cfg(feature = "bytes")]
impl IoBuf for bytes::BytesMut {
    fn bytes(&self) -> &[u8] {
        self
    }
}

#[cfg(feature = "bytes")]
impl IoBufMut for bytes::BytesMut {
    fn space(&mut self) -> Space<'_> {
        self.clear();
        Space::Uninit(self.spare_capacity_mut())
    }

    unsafe fn set_filled(&mut self, n: usize) {
        // SAFETY: as for `Vec<u8>`.
        unsafe { self.set_len(n) }
    }
}

/// A buffer of which only the first bytes are used: see [`limit`](IoBufExt::limit).
#[derive(Debug, Clone)]
pub struct Limit<B> {
    buffer: B,
    limit: usize,
}

impl<B> Limit<B> {
    /// The buffer itself.
    pub fn into_inner(self) -> B {
        self.buffer
    }
}

impl<B: IoBuf> IoBuf for Limit<B> {
    fn bytes(&self) -> &[u8] {
        let bytes = self.buffer.bytes();
        &bytes[..self.limit.min(bytes.len())]
    }
}

impl<B: IoBufMut> IoBufMut for Limit<B> {
    fn space(&mut self) -> Space<'_> {
        self.buffer.space().first(self.limit)
    }

    unsafe fn set_filled(&mut self, n: usize) {
        // SAFETY: the limited space is the start of the buffer's own.
        unsafe { self.buffer.set_filled(n) }
    }
}

/// Adapters for buffers.
pub trait IoBufExt: Sized {
    /// Use at most the first `n` bytes of this buffer, however large its capacity is.
    fn limit(self, n: usize) -> Limit<Self> {
        Limit {
            buffer: self,
            limit: n,
        }
    }
}

impl<B: Any + Send> IoBufExt for B {}

/// A read buffer whose type is forgotten: what an operation owns.
pub type Buffer = Box<dyn IoBufMut>;

/// Bytes to write whose type is forgotten: what an operation owns.
pub type Source = Box<dyn IoBuf>;

impl std::fmt::Debug for dyn IoBufMut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IoBufMut")
    }
}

impl std::fmt::Debug for dyn IoBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IoBuf({} bytes)", self.bytes().len())
    }
}

/// Gets the concrete buffer back out of an operation. Fails, giving the buffer back, if it is of
/// another type.
pub fn downcast<B: IoBufMut>(buffer: Buffer) -> Result<B, Buffer> {
    if <dyn Any>::is::<B>(&*buffer as &dyn Any) {
        let any: Box<dyn Any> = buffer;
        // The type was just checked, so the other arm is never taken.
        any.downcast::<B>()
            .map(|b| *b)
            .map_err(|_| Box::new(Vec::new()) as Buffer)
    } else {
        Err(buffer)
    }
}

/// Gets the concrete bytes back out of an operation, as [`downcast`] does for read buffers.
pub fn downcast_source<B: IoBuf>(source: Source) -> Result<B, Source> {
    if <dyn Any>::is::<B>(&*source as &dyn Any) {
        let any: Box<dyn Any> = source;
        any.downcast::<B>()
            .map(|b| *b)
            .map_err(|_| Box::new(Vec::new()) as Source)
    } else {
        Err(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_room_for_its_capacity() {
        let mut v = vec![7u8; 100];
        assert!(v.space().len() >= 100);
        assert!(v.is_empty(), "what it held before is forgotten");
        let mut limited = Vec::with_capacity(100).limit(10);
        assert_eq!(limited.space().len(), 10);
    }

    #[test]
    fn the_type_comes_back() {
        let erased: Buffer = Box::new(vec![1u8, 2]);
        let erased = downcast::<Box<[u8; 4]>>(erased).unwrap_err();
        assert_eq!(downcast::<Vec<u8>>(erased).unwrap(), [1, 2]);
    }
}
