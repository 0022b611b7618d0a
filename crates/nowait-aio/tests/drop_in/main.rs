//! The library under C programs that know nothing of it: run with glibc's AIO first, where they must
//! pass but for what glibc gets wrong, and then with ours, on both backends.

mod common;
mod conformance;
mod exports;
mod faults;
mod programs;
mod statistics;
mod stress;
mod valgrind;
