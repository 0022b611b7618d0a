//! The buffer traits, and implementations for types of the standard library.
#![allow(unsafe_code)]

use std::any::Any;

use crate::sys::uninit_slice::UninitSlice;

/// An owned buffer that can be written. [`File::write_at`](crate::File::write_at) takes it, and
/// returns it with the result.
pub trait IoBuf: Any + Send {
    /// The bytes to write. Called once, when the operation is made. A future that first tries the
    /// write in the calling thread calls it before that as well.
    fn bytes(&self) -> &[u8];
}

/// An owned buffer that can be read into. [`File::read_at`](crate::File::read_at) takes it, and
/// returns it with the result, also after an error.
///
/// Arrays do not implement this trait: an array would be copied into the read, and the bytes would
/// be lost with the copy. Boxed arrays do.
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
    message = "`{Self}` is not a buffer that can be read into",
    label = "must own memory that does not move, such as `Vec<u8>`, `Box<[u8]>` or `Box<[u8; N]>`",
    note = "an array is copied into the read: box it, as in `Box::new([0; 4096])`, or use `vec![0; 4096]`"
)]
pub trait IoBufMut: Any + Send {
    /// The memory to fill, from its start. Data that a growable buffer held before is discarded.
    ///
    /// Called once, when the operation is made. A future that first tries the read in the calling
    /// thread calls it before that as well.
    fn as_uninit(&mut self) -> UninitSlice<'_>;

    /// Called at most once, after a read, when the buffer is returned. The first `n` bytes of
    /// [`as_uninit`](IoBufMut::as_uninit) are now file data.
    ///
    /// # Safety
    /// Each of those bytes was initialised through memory that `as_uninit` returned since the
    /// last `set_filled`. If `as_uninit` was called twice, a leading part may have been initialised
    /// through the result of the first call, and the rest through the result of the last call.
    unsafe fn set_filled(&mut self, n: usize);
}

impl IoBuf for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Filled from its start up to its capacity. Its length becomes the number of bytes read.
/// `Vec::with_capacity(n)` and `vec![0; n]` both have room for `n` bytes.
impl IoBufMut for Vec<u8> {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        self.clear();
        UninitSlice::Uninit(self.spare_capacity_mut())
    }

    unsafe fn set_filled(&mut self, n: usize) {
        // SAFETY: the caller initialised `n` bytes from the start of the spare capacity of an empty
        // vector.
        unsafe { self.set_len(n) }
    }
}

impl IoBuf for Box<[u8]> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl IoBufMut for Box<[u8]> {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        UninitSlice::Init(self)
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
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        UninitSlice::Init(&mut **self)
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
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        self.clear();
        UninitSlice::Uninit(self.spare_capacity_mut())
    }

    unsafe fn set_filled(&mut self, n: usize) {
        // SAFETY: the same as for `Vec<u8>`.
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
    /// Returns the buffer itself.
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
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        self.buffer.as_uninit().first(self.limit)
    }

    unsafe fn set_filled(&mut self, n: usize) {
        // SAFETY: the limited space is the start of the buffer's own space.
        unsafe { self.buffer.set_filled(n) }
    }
}

/// Adapters for buffers.
pub trait IoBufExt: Sized {
    /// Uses at most the first `n` bytes of this buffer, regardless of its capacity.
    fn limit(self, n: usize) -> Limit<Self> {
        Limit {
            buffer: self,
            limit: n,
        }
    }
}

impl<B: Any + Send> IoBufExt for B {}

/// A read buffer of any type, as owned by an operation.
pub type Buffer = Box<dyn IoBufMut>;

/// A source of bytes to write, of any type, as owned by an operation.
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

/// Converts the buffer of an operation to its concrete type. Returns the buffer as the error if it
/// has another type.
pub fn downcast<B: IoBufMut>(buffer: Buffer) -> Result<B, Buffer> {
    if <dyn Any>::is::<B>(&*buffer as &dyn Any) {
        let any: Box<dyn Any> = buffer;
        // The type was checked above, so the error branch is never taken.
        any.downcast::<B>()
            .map(|b| *b)
            .map_err(|_| Box::new(Vec::new()) as Buffer)
    } else {
        Err(buffer)
    }
}

/// Converts the source of an operation to its concrete type, like [`downcast`] for read buffers.
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
        assert!(v.as_uninit().len() >= 100);
        assert!(v.is_empty(), "its old contents are discarded");
        let mut limited = Vec::with_capacity(100).limit(10);
        assert_eq!(limited.as_uninit().len(), 10);
    }

    #[test]
    fn the_type_comes_back() {
        let erased: Buffer = Box::new(vec![1u8, 2]);
        let erased = downcast::<Box<[u8; 4]>>(erased).unwrap_err();
        assert_eq!(downcast::<Vec<u8>>(erased).unwrap(), [1, 2]);
    }
}
