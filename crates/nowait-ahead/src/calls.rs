//! The functions that the library interposes. Each calls the C library's, and returns its result.

mod data;
mod descriptor;
mod directory;
mod open;
mod process;
mod read;
mod sandbox;
mod stat;
mod tree;

/// Finds all functions of the C library. ld.so(8) may wait for a lock in dlsym(3), and a program
/// may forbid that call at any time.
pub fn find() {
    data::find();
    descriptor::find();
    descriptor::find_vfork();
    directory::find();
    open::find();
    process::find();
    read::find();
    sandbox::find();
    stat::find();
    tree::find();
    tree::find_walks();
}
