//! A completion.

use std::os::fd::IntoRawFd;

use nowait::{Completion, ServedBy};

use super::op;
use crate::guard::errno;

/// The result of an operation.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct nw_completion {
    /// The operation's user_data.
    pub user_data: u64,
    /// The number of bytes, the descriptor of NW_OP_OPENAT, 0 for other operations; or −errno.
    pub result: i64,
    /// The ticket that nw_submit returned, or 0.
    pub ticket: u64,
    /// Bytes that came from the page cache.
    pub cached: u64,
    /// Bytes that came from the device.
    pub device: u64,
    /// Bytes of unknown origin.
    pub unknown: u64,
    /// NW_BY_CALLER, NW_BY_RING or NW_BY_WORKER.
    pub served_by: u32,
    /// 0.
    pub reserved: u32,
}

/// The calling thread has served the operation.
pub const NW_BY_CALLER: u32 = 0;
/// The ring has served the operation.
pub const NW_BY_RING: u32 = 1;
/// A worker has served the operation.
pub const NW_BY_WORKER: u32 = 2;

impl nw_completion {
    pub(super) fn of(completion: Completion) -> nw_completion {
        let provenance = completion.provenance;
        let succeeded = completion.result.is_ok();
        let ended = op::end(completion.op, succeeded);
        let result = match (&completion.result, ended.opened) {
            (Ok(_), Some(fd)) => i64::from(fd.into_raw_fd()),
            (Ok(n), None) => *n as i64,
            (Err(error), _) => -i64::from(errno(error)),
        };
        nw_completion {
            user_data: ended.user_data,
            result,
            ticket: completion.ticket.map_or(0, |ticket| ticket.0),
            cached: provenance.cached as u64,
            device: provenance.device as u64,
            unknown: provenance.unknown as u64,
            served_by: match provenance.served_by {
                ServedBy::Caller => NW_BY_CALLER,
                ServedBy::Ring => NW_BY_RING,
                ServedBy::Worker => NW_BY_WORKER,
            },
            reserved: 0,
        }
    }
}
