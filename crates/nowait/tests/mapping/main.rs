//! Mappings: resident bytes are those of the file, whatever happens to it.

#[path = "../common"]
mod common {
    pub mod backends;
    pub mod cache;
    pub mod children;
    pub mod files;
    pub mod forked;
    pub mod limit;
    pub mod mounts;
    pub mod nobody;
    pub mod sandbox;
    pub mod wait;
}

mod basics;
mod changes;
mod kinds;
mod pressure;
mod process;
mod races;

use std::time::Instant;

use nowait::mapping::{Budget, BudgetOptions, Unavailable};
use nowait::{File, Mapping};

use common::wait::LONG;

/// The size of a window in these tests.
const WINDOW: u64 = 64 << 10;

/// A budget of this number of windows.
fn budget(windows: u64) -> Budget {
    let options = BudgetOptions::new().window(WINDOW as usize);
    options.limit(windows * WINDOW).build().unwrap()
}

/// Maps a file that no test has open for writing. A process that was just forked for another test may have
/// descriptors of this one until it calls execve(2).
fn mapped(file: &File, budget: &Budget) -> Mapping {
    let end = Instant::now() + LONG;
    loop {
        let mapping = Mapping::within(file, budget).unwrap();
        if mapping.why() != Some(Unavailable::OpenForWriting) || Instant::now() > end {
            return mapping;
        }
        std::thread::yield_now();
    }
}
