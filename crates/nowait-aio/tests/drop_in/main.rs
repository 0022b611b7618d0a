//! C programs that are written for <aio.h> alone. Each case is run with glibc's AIO first, where it must pass
//! unless glibc is known to fail it, and then with the library preloaded, on both backends.

mod common;
mod conformance;
mod durable;
mod exports;
mod faults;
mod programs;
mod statistics;
mod stress;
mod valgrind;
