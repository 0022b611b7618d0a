//! The tests with object_store 0.14.

#![allow(
    clippy::duplicate_mod,
    reason = "one text for all versions of object_store"
)]

use nowait_object_store::v0_14::NowaitFileSystem;
use object_store_0_14 as object_store;

/// The quotes of entity tags.
const QUOTE: &str = "\"";

#[path = "calls.rs"]
mod calls;
#[path = "changes.rs"]
mod changes;
#[path = "durable.rs"]
mod durable;
#[path = "errors.rs"]
mod errors;
#[path = "fork.rs"]
mod fork;
#[path = "kinds.rs"]
mod kinds;
#[path = "limits.rs"]
mod limits;
#[path = "lists.rs"]
mod lists;
#[path = "local.rs"]
mod local;
#[path = "mapped.rs"]
mod mapped;
#[path = "paused_clock.rs"]
mod paused_clock;
#[path = "random_calls.rs"]
mod random_calls;
#[path = "reads.rs"]
mod reads;
#[path = "stall.rs"]
mod stall;
#[path = "sync_calls.rs"]
mod sync_calls;
#[path = "without_links.rs"]
mod without_links;
#[path = "writes.rs"]
mod writes;
