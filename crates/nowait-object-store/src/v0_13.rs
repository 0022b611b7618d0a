//! The store for object_store 0.13.

use object_store_0_13 as object_store;

use std::ops::Range;

use object_store::{
    Attributes, GetResult, GetResultPayload, ListResult, ObjectMeta, PutResult, path::Path,
};

#[path = "store.rs"]
#[allow(
    clippy::duplicate_mod,
    reason = "one text for all versions of object_store"
)]
mod store;

pub use store::NowaitFileSystem;

/// The entity tag as [`object_store::local::LocalFileSystem`] of this version writes it: without
/// quotes.
fn quoted(e_tag: String) -> String {
    e_tag
}

fn get_result(payload: GetResultPayload, meta: ObjectMeta, range: Range<u64>) -> GetResult {
    GetResult {
        payload,
        meta,
        range,
        attributes: Attributes::default(),
    }
}

fn put_result(e_tag: String) -> PutResult {
    PutResult {
        e_tag: Some(e_tag),
        version: None,
    }
}

fn list_result(common_prefixes: Vec<Path>, objects: Vec<ObjectMeta>) -> ListResult {
    ListResult {
        common_prefixes,
        objects,
    }
}
