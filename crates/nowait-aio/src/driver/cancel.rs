//! Finds the requests that an aio_cancel(3) asks for.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, AsRawFd};

use crate::driver::file_table::FileTable;
use crate::driver::in_flight::InFlight;
use crate::driver::requests::Requests;
use crate::queue::Cancellation;
use crate::sys::open_file::DescriptorOf;
use crate::sys::{open_file, thread};

/// The requests that a cancellation asks for.
#[derive(Default)]
pub struct Matching {
    /// Those that can be cancelled, by `user_data`.
    pub waiting: BTreeSet<usize>,
    /// There are others, which have begun.
    pub any_begun: bool,
}

pub fn matching(requests: &Requests, files: &FileTable, cancellation: &Cancellation) -> Matching {
    let mut found = Matching::default();
    let mut file_matches = HashMap::new();
    for (user_data, request) in requests.iter() {
        if request.request.fildes != cancellation.fildes.number {
            continue;
        }
        let matches = match cancellation.block {
            // The file of this number does not matter: the program may have given the number away.
            Some(block) => block == request.request.block,
            None => *file_matches
                .entry(request.file)
                .or_insert_with(|| is_file_of(request, files, cancellation)),
        };
        if !matches {
            continue;
        }
        if request.has_begun() {
            found.any_begun = true;
        } else {
            found.waiting.insert(user_data);
        }
    }
    found
}

/// True if the program's descriptor still refers to the file of this request, or if the kernel
/// cannot tell.
fn is_file_of(request: &InFlight, files: &FileTable, cancellation: &Cancellation) -> bool {
    let Some(file) = files.get(request.file) else {
        return false;
    };
    let of_driver = DescriptorOf {
        thread: thread::id(),
        number: file.as_fd().as_raw_fd(),
    };
    open_file::is_same_across_threads(cancellation.fildes, of_driver) != Some(false)
}
