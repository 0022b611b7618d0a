//! The functions that the library interposes. Each calls the C library's, and returns its result; `data` has the exceptions.

mod close;
mod data;
mod descriptor;
mod directory;
mod execute;
mod lock;
mod look_up;
mod open;
mod read;
mod rename;
mod sandbox;
mod scan;
mod stat;
mod transfer;
mod tree;

/// Finds all functions of the C library. ld.so(8) may wait for a lock in dlsym(3), and a program
/// may forbid that call at any time.
pub fn find() {
    close::find();
    data::find();
    descriptor::find();
    descriptor::find_vfork();
    directory::find();
    execute::find();
    execute::find_variadic();
    lock::find();
    look_up::find();
    open::find();
    read::find();
    rename::find();
    sandbox::find();
    scan::find();
    stat::find();
    transfer::find();
    tree::find();
    tree::find_walks();
}
