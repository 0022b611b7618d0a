//! The store beside `LocalFileSystem`, and on filesystems that are full, slow or stalled, with each version of
//! object_store.

#![allow(
    clippy::single_range_in_vec_init,
    reason = "a list of ranges may have one"
)]

mod common;
mod places;
#[cfg(feature = "object_store_0_13")]
mod v0_13;
#[cfg(feature = "object_store_0_14")]
mod v0_14;
