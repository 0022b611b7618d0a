//! Tests of `nowait run` and `nowait learn`.

#[path = "../common/alone.rs"]
mod alone;
#[macro_use]
#[path = "../common/program.rs"]
mod program;

mod calls;
mod exit;
mod foreign;
mod hostile;
mod keep_cache;
mod learn;
mod programs;
mod same;
mod surveys;
mod unnoticed;
