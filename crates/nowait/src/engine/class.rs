//! Classes of operations, by how long they may wait.
//!
//! | class | operations | may wait for |
//! |---|---|---|
//! | File | reads, writes and syncs of regular files and block devices | a device |
//! | Call | opens, statx and other calls by path | the server of a mount, which may hang |
//! | Unbounded | opens of FIFOs; reads and writes of pipes, sockets, terminals and the like | another program, without end |
//!
//! Each class has its own permits and workers. Operations that wait without end therefore take no
//! permit and no worker from the other classes.

use crate::handle::Handle;
use crate::op::{Kind, Opens};

/// The class of an operation, by the time that it may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Waits for a device.
    File,
    /// Waits for a server, which may hang.
    Call,
    /// May wait without end.
    Unbounded,
}

impl Class {
    pub(crate) const ALL: [Class; 3] = [Class::File, Class::Call, Class::Unbounded];

    /// The class of an operation.
    pub(crate) fn of(kind: &Kind) -> Class {
        match kind {
            Kind::Openat2(open) if open.opens() == Opens::MayWait => Class::Unbounded,
            Kind::Openat2(_) => Class::Call,
            Kind::Call(call) if !call.transfers() => Class::Call,
            Kind::Statx(statx) if statx.is_by_path() => Class::Call,
            Kind::Statx(_) => Class::File,
            _ => kind.handle().map_or(Class::File, Class::of_handle),
        }
    }

    /// The class of reads and writes of an open file.
    pub(crate) fn of_handle(handle: &Handle) -> Class {
        if handle.waits_without_end() {
            Class::Unbounded
        } else {
            Class::File
        }
    }
}
