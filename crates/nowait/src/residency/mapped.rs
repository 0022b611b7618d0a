//! A mapping of a file for mincore(2).

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use once_cell::race::OnceBox;

use super::pages::page_size;
use crate::cast::to_usize;
use crate::sys::Errno;
use crate::sys::reopen::reopen;
use crate::sys::residency::Mapping;
use crate::sys::stat::Shape;

/// Address space that is mapped beyond the end of a file. A file that grows less than this needs no further
/// mapping. The last page of it shows if mincore is wrong. It must therefore lie beyond the folio at the
/// end of the file.
const GROWTH: u64 = 16 << 20;
/// The maximum address space that is kept for one file.
const MAX_MAPPED: u64 = 64 << 30;

/// A mapped file, for queries by mincore(2).
#[derive(Debug)]
pub(crate) struct Mapped {
    window: Window,
    /// Set on overlayfs.
    layer: Option<Layer>,
}

/// A mapped part of a file, from `start` on.
#[derive(Debug)]
struct Window {
    start: u64,
    mapping: Mapping,
}

/// On overlayfs, an open file maps the file of the layer it was opened in. The first write copies the file
/// up, and later reads use the copy.
#[derive(Debug)]
struct Layer {
    /// The change time of the mapped file. The copy has a later one.
    changed: (i64, i64),
    /// A mapping of the copy, made when the change time differs. A file is copied up only once.
    copy: OnceBox<Option<Window>>,
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapping({} bytes)", self.len())
    }
}

impl Mapped {
    /// Maps a file. `layered` is true if it lies on overlayfs.
    pub(super) fn new(fd: BorrowedFd<'_>, shape: &Shape, layered: bool) -> Result<Mapped, Errno> {
        Ok(Mapped {
            window: Window::at_end(fd, shape.size, layered)?,
            layer: layered.then(|| Layer {
                changed: shape.changed,
                copy: OnceBox::new(),
            }),
        })
    }

    /// Maps some pages of a file that does not lie on overlayfs.
    pub(super) fn of_pages(fd: BorrowedFd<'_>, pages: Range<u64>) -> Result<Mapped, Errno> {
        let bytes = pages.start * page_size()..pages.end * page_size();
        Ok(Mapped {
            window: Window::new(fd, &bytes, false)?,
            layer: None,
        })
    }

    /// Returns true if mincore(2) reports every page as resident, as it does for files that the caller
    /// neither owns nor may write. It then also does so for a page far beyond the end of the file, which
    /// cannot be resident.
    pub(super) fn is_untrustworthy(&self) -> Result<bool, Errno> {
        let mapping = &self.window.mapping;
        let mut beyond = [0];
        let page = to_usize(page_size());
        mapping.mincore(mapping.len() - page, page, &mut beyond)?;
        Ok(beyond[0] & 1 == 1)
    }

    /// Calls mincore(2): bit 0 of each byte is set if that page of the file is resident. `shape` is the
    /// file's current shape.
    pub(super) fn look(
        &self,
        fd: BorrowedFd<'_>,
        shape: &Shape,
        pages: Range<u64>,
        resident: &mut [u8],
    ) -> Result<(), Errno> {
        let window = match &self.layer {
            Some(layer) if layer.changed != shape.changed => layer
                .copy
                .get_or_init(|| Box::new(Window::at_end(fd, shape.size, true).ok()))
                .as_ref()
                .ok_or(Errno::NODEV)?,
            _ => &self.window,
        };
        let bytes = pages.start * page_size()..pages.end * page_size();
        if window.covers(&bytes) {
            window.mincore(&bytes, resident)
        } else {
            Window::new(fd, &bytes, self.layer.is_some())?.mincore(&bytes, resident)
        }
    }
}

impl Window {
    /// Maps the whole file of `size` bytes, or its last `MAX_MAPPED` bytes, and room for growth.
    fn at_end(fd: BorrowedFd<'_>, size: u64, layered: bool) -> Result<Window, Errno> {
        let end = size
            .checked_next_multiple_of(page_size())
            .and_then(|end| end.checked_add(GROWTH))
            .ok_or(Errno::OVERFLOW)?;
        Window::new(fd, &(end.saturating_sub(MAX_MAPPED)..end), layered)
    }

    /// Maps these bytes, which are whole pages.
    fn new(fd: BorrowedFd<'_>, bytes: &Range<u64>, layered: bool) -> Result<Window, Errno> {
        let len = usize::try_from(bytes.end - bytes.start).map_err(|_| Errno::NOMEM)?;
        // A descriptor that was opened before a copy-up maps the file that was copied.
        let fresh = if layered { reopen(fd).ok() } else { None };
        let fd = fresh.as_ref().map_or(fd, |fresh| fresh.as_fd());
        Ok(Window {
            start: bytes.start,
            mapping: Mapping::new(fd, bytes.start, len)?,
        })
    }

    fn covers(&self, bytes: &Range<u64>) -> bool {
        self.start <= bytes.start && bytes.end <= self.start + self.mapping.len() as u64
    }

    fn mincore(&self, bytes: &Range<u64>, resident: &mut [u8]) -> Result<(), Errno> {
        let start = to_usize(bytes.start - self.start);
        let len = to_usize(bytes.end - bytes.start);
        self.mapping.mincore(start, len, resident)
    }
}
