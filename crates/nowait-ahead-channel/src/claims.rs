//! Claims of open files. The program may evict a file that has one claim alone when it closes the file.
//!
//! A survey of a file that is open twice also counts pages that the other reader has read, so the first
//! survey must be kept until both have closed the file. A program claims a file before it surveys it. If
//! the file is claimed already, the claim becomes shared, and `nowait run` evicts the file. A hash of
//! the file selects the claim. Two files with the same hash count as one shared file.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::event::key;

const FILES: usize = 1 << 14;
const FREE: u64 = 0;
const SHARED: u64 = u64::MAX;

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Claims([AtomicU64; FILES]);

impl Claims {
    /// Claims a file with a token, which is different for each claim. Returns false if the file is
    /// shared.
    pub fn claim(&self, id: (u64, u64), token: u64) -> bool {
        let place = self.of(id);
        let is_free = place
            .compare_exchange(FREE, token, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if !is_free {
            place.store(SHARED, Ordering::Release);
        }
        is_free
    }

    /// Returns true if the file is still claimed with this token.
    pub fn is_claimed(&self, id: (u64, u64), token: u64) -> bool {
        self.of(id).load(Ordering::Acquire) == token
    }

    /// Ends a claim. Returns false if the file was shared meanwhile.
    pub fn release(&self, id: (u64, u64), token: u64) -> bool {
        self.of(id)
            .compare_exchange(token, FREE, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Ends all claims of a file that is not in use any more.
    pub fn free(&self, id: (u64, u64)) {
        self.of(id).store(FREE, Ordering::Release);
    }

    fn of(&self, id: (u64, u64)) -> &AtomicU64 {
        &self.0[(key(id) >> 50) as usize % FILES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims([const { AtomicU64::new(0) }; FILES])
    }

    #[test]
    fn a_file_that_is_opened_twice_is_shared_until_it_is_freed() {
        let (claims, id) = (claims(), (1, 2));
        assert!(claims.claim(id, 10));
        assert!(claims.is_claimed(id, 10));
        assert!(!claims.claim(id, 11));
        assert!(!claims.is_claimed(id, 10) && !claims.is_claimed(id, 11));
        assert!(!claims.release(id, 10));
        assert!(!claims.claim(id, 12));
        claims.free(id);
        assert!(claims.claim(id, 13) && claims.release(id, 13));
        assert!(claims.claim(id, 14));
    }

    #[test]
    fn any_numbers_are_files() {
        let claims = claims();
        for device in [0, 1, 1 << 32, u64::MAX] {
            for inode in [0, 1, 1 << 50, u64::MAX] {
                let _ = claims.claim((device, inode), 1);
                claims.free((device, inode));
            }
        }
    }
}
