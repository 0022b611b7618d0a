//! The C library: its header, its symbols, and C programs that use it.

mod disk;
mod durable;
mod examples;
mod header;
mod installed;
mod manual;
mod nginx;
mod overlay;
mod programs;
mod symbols;
