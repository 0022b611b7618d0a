//! The program `nowait`: shows and measures what the page cache, the kernel and the disk do with
//! your reads. One file per verb; this one only parses and dispatches.

mod bench;
mod bring;
mod cache;
mod deferred;
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

use deferred::Deferred;

/// File I/O that does not make you wait: look at it, measure it.
#[derive(Parser)]
#[command(name = "nowait", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// What kernel, sandbox and filesystem allow here, what calls cost, and what follows.
    Doctor(Deferred<doctor::Args>),
    /// Measures reads beside what people use today.
    Bench(Deferred<bench::Args>),
    /// Shows how much of files is in the page cache. Reads none of them.
    Fincore(Deferred<fincore::Args>),
    /// Takes files out of the page cache, and says what stayed and why.
    Evict(Deferred<evict::Args>),
    /// Brings files into the page cache: only what is missing, and no more than stays there.
    Warm(Deferred<warm::Args>),
    /// Notes which ranges of files are in the page cache, and brings them back later.
    Cache(Deferred<cache::Args>),
    /// Lists directories.
    Ls(Deferred<ls::Args>),
    /// Shows how much space directories take, with all that is in them.
    Du(Deferred<du::Args>),
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

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::*;

    #[test]
    fn the_list_of_verbs_says_what_each_verb_says_of_itself() {
        let listed = Cli::command();
        let mut whole = Cli::command();
        whole.build();
        let mut verbs = compare(&listed, &whole);
        // A second time, now that the benches are listed.
        let mut bench = whole.find_subcommand("bench").unwrap().clone();
        bench.build();
        let benches = <bench::Args as clap::Args>::augment_args(Command::new("bench"));
        verbs += compare(&benches, &bench);
        assert_eq!(verbs, 8 + 9);
    }

    /// Compares the subcommands that are to be seen; says how many those are.
    fn compare(listed: &Command, whole: &Command) -> usize {
        let seen = listed.get_subcommands().filter(|verb| !verb.is_hide_set());
        let compared = seen.map(|verb| {
            let name = verb.get_name();
            let says = |verb: &Command| verb.get_about().map(ToString::to_string);
            assert!(says(verb).is_some(), "{name}");
            assert_eq!(
                says(verb),
                whole.find_subcommand(name).and_then(says),
                "{name}"
            );
        });
        compared.count()
    }
}
