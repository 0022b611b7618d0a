//! Small files that the program has open for reading. It evicts them itself when it closes them,
//! which takes less time than in another process: the pages are still in the lists of its processor.
//!
//! `nowait run` evicts a file that may be in use after its descriptor is closed: if it is duplicated,
//! mapped, or inherited, or if the file is open twice.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::system_calls;

/// A file that was surveyed.
#[derive(Clone, Copy)]
pub struct OpenFile {
    /// The number of its event.
    pub event: u64,
    /// The token of its claim.
    pub token: u64,
    pub id: (u64, u64),
    /// The pages that are not resident; see [`nowait_ahead_channel::Event::pages`].
    pub pages: u64,
    /// The number of resident pages.
    pub resident: u64,
}

/// The files of greater descriptors are not known.
pub const NUMBERS: usize = 1024;
const WORDS: usize = 6;

/// A file, by its descriptor.
struct Entry {
    /// The number of calls of [`share_all`] before the file was opened, plus one. 0 if there is no
    /// file.
    state: AtomicU32,
    words: [AtomicU64; WORDS],
}

static FILES: [Entry; NUMBERS] = [const {
    Entry {
        state: AtomicU32::new(0),
        words: [const { AtomicU64::new(0) }; WORDS],
    }
}; NUMBERS];

/// The number of calls that may have given all descriptors to another process.
pub static SHARED: AtomicU32 = AtomicU32::new(0);

fn entry(fd: c_int) -> Option<&'static Entry> {
    FILES.get(usize::try_from(fd).ok()?)
}

/// The number of calls of [`share_all`] so far.
pub fn shared() -> u32 {
    SHARED.load(Ordering::Relaxed)
}

/// Adds the file of a descriptor that the program has not yet got. `shared` is [`shared`] before the
/// file was opened.
pub fn insert(fd: c_int, file: &OpenFile, shared: u32) {
    let Some(entry) = entry(fd) else { return };
    let words = [
        file.event,
        file.token,
        file.id.0,
        file.id.1,
        file.pages,
        file.resident,
    ];
    for (to, word) in entry.words.iter().zip(words) {
        to.store(word, Ordering::Relaxed);
    }
    entry.state.store(shared.wrapping_add(1), Ordering::Release);
}

/// Returns true if a descriptor has a file here.
pub fn contains(fd: c_int) -> bool {
    entry(fd).is_some_and(|entry| entry.state.load(Ordering::Relaxed) != 0)
}

/// Removes the file of a descriptor, which is closed, or whose file may be used without it.
/// Returns the file if only this descriptor has it.
pub fn remove(fd: c_int) -> Option<OpenFile> {
    let entry = entry(fd)?;
    // Most descriptors have no file here. A child of vfork(2) closes its own.
    if !contains(fd) || !system_calls::are_allowed() {
        return None;
    }
    let state = entry.state.swap(0, Ordering::Acquire);
    let [event, token, device, inode, pages, resident] = entry
        .words
        .each_ref()
        .map(|word| word.load(Ordering::Relaxed));
    let is_own = state != 0 && state == shared().wrapping_add(1);
    is_own.then_some(OpenFile {
        event,
        token,
        id: (device, inode),
        pages,
        resident,
    })
}

/// The program is about to start a process, or to send descriptors to one.
pub fn share_all() {
    SHARED.fetch_add(1, Ordering::Relaxed);
}
