//! Tests of the other verbs. Those of `nowait run` and `nowait keep` are apart.

#[macro_use]
#[path = "../common/program.rs"]
mod program;

mod bad_input;
mod book;
mod cache;
mod deep_trees;
mod demo;
mod doctor;
mod du;
mod evict;
mod fincore;
mod foreign_names;
mod generate;
mod interrupt;
mod leases;
mod low_limits;
mod options;
mod scan;
mod swapped;
mod terminal;
mod warm;
mod warm_metadata;
