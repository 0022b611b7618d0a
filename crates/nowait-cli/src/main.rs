//! The program `nowait`: shows and measures what the page cache, the kernel and the disk do with
//! your reads. One file per verb; this one only parses and dispatches.

mod bench;
mod bring;
mod cache;
mod doctor;
mod du;
mod evict;
mod fincore;
mod ls;
mod met;
mod name;
mod output;
mod plot;
mod problem;
mod progress;
mod remark;
mod size;
mod stop;
mod terminal;
mod tree;
mod unknown;
mod usage;
mod warm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// File I/O that does not make you wait: look at it, measure it.
#[derive(Parser)]
#[command(name = "nowait", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Doctor(doctor::Args),
    Bench(bench::Args),
    Fincore(fincore::Args),
    Evict(evict::Args),
    Warm(warm::Args),
    Cache(cache::Args),
    Ls(ls::Args),
    Du(du::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::Fincore(args) => fincore::run(&args),
        Verb::Evict(args) => evict::run(&args),
        Verb::Warm(args) => warm::run(&args),
        Verb::Cache(args) => cache::run(&args),
        Verb::Ls(args) => ls::run(&args),
        Verb::Du(args) => du::run(&args),
    };
    outcome.unwrap_or_else(|message| {
        eprintln!("nowait: {message}");
        ExitCode::from(1)
    })
}
