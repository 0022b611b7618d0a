//! The sums of the files that programs have evicted themselves.

use std::sync::atomic::{AtomicU64, Ordering};

const MOUNTS: usize = 16;

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Evicted([Mount; MOUNTS]);

#[repr(C)]
#[derive(Debug)]
struct Mount {
    /// The ID of the mount, plus one.
    id: AtomicU64,
    files: AtomicU64,
    before: AtomicU64,
    after: AtomicU64,
}

/// The files of a mount that programs have evicted themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictedFiles {
    /// The ID of the mount (`stx_mnt_id`).
    pub mount: u64,
    /// The number of files.
    pub files: u64,
    /// The bytes that were resident before.
    pub before: u64,
    /// The bytes that are resident afterwards.
    pub after: u64,
}

impl Evicted {
    /// Adds files. They are not counted if there are too many mounts.
    pub fn add(&self, more: EvictedFiles) {
        let id = more.mount.wrapping_add(1);
        let is_its = |mount: &&Mount| {
            let found = mount
                .id
                .compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed);
            found.is_ok() || found == Err(id)
        };
        if let Some(mount) = self.0.iter().find(is_its) {
            mount.files.fetch_add(more.files, Ordering::Relaxed);
            mount.before.fetch_add(more.before, Ordering::Relaxed);
            mount.after.fetch_add(more.after, Ordering::Relaxed);
        }
    }

    /// The sums of each mount.
    pub fn sums(&self) -> impl Iterator<Item = EvictedFiles> {
        let load = |it: &AtomicU64| it.load(Ordering::Relaxed);
        let known = self.0.iter().filter(move |mount| load(&mount.id) != 0);
        known.map(move |mount| EvictedFiles {
            mount: load(&mount.id).wrapping_sub(1),
            files: load(&mount.files),
            before: load(&mount.before),
            after: load(&mount.after),
        })
    }
}
