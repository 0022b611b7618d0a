//! The store for object_store 0.14.

use object_store_0_14 as object_store;

use std::ops::Range;

use object_store::{
    Attributes, Extensions, GetResult, GetResultPayload, ListResult, ObjectMeta, PutResult,
    path::Path,
};

#[path = "store.rs"]
#[allow(
    clippy::duplicate_mod,
    reason = "one text for all versions of object_store"
)]
mod store;

pub use store::NowaitFileSystem;

/// The entity tag as [`object_store::local::LocalFileSystem`] of this version writes it: in quotes.
fn quoted(e_tag: String) -> String {
    format!("\"{e_tag}\"")
}

fn get_result(payload: GetResultPayload, meta: ObjectMeta, range: Range<u64>) -> GetResult {
    GetResult {
        payload,
        meta,
        range,
        attributes: Attributes::default(),
        extensions: Extensions::default(),
    }
}

fn put_result(e_tag: String) -> PutResult {
    PutResult {
        e_tag: Some(e_tag),
        version: None,
        extensions: Extensions::default(),
    }
}

fn list_result(common_prefixes: Vec<Path>, objects: Vec<ObjectMeta>) -> ListResult {
    ListResult {
        common_prefixes,
        objects,
        extensions: Extensions::default(),
    }
}
