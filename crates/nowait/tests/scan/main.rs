//! Scans of directories and walks of trees.

#[path = "../common"]
mod common {
    pub mod backends;
    pub mod by_workers;
    pub mod children;
    pub mod files;
    pub mod hooked;
    pub mod limit;
    pub mod mounts;
    pub mod nobody;
    pub mod open_paths;
    pub mod sandbox;
    pub mod wait;
}

mod cold;
mod directories;
mod errors;
mod fuse;
mod hammer;
mod hostile;
mod limits;
mod names;
mod readahead;
mod small;
mod stall;
mod walk_bounds;
mod walk_deep;
mod walk_tree;
mod xattrs;
