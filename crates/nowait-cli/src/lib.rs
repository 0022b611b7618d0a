//! The program `nowait`: tools for the page cache, asynchronous file I/O and directory trees. Each
//! verb has a file of its own; this file parses the command line and calls the verb.
//!
//! The program is a library so that the fuzz targets can call its parsers. It has no stable API.

mod cache;
pub mod deferred;
mod demo;
pub mod doctor;
mod du;
mod evict;
mod file_list;
mod file_time;
mod fincore;
#[cfg(fuzzing)]
pub mod fuzzing;
mod generate;
pub mod help;
pub mod interval;
mod keep;
mod learn;
mod messages;
mod name;
pub mod noise;
mod output;
mod paths;
mod prefetch;
pub mod problem;
pub mod progress;
mod run;
mod scan;
pub mod scramble;
mod selection;
pub mod stop;
pub mod terminal;
mod unknown;
mod usage;
mod warm;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

pub use nowait_page_cache::{proc, size};

use deferred::Deferred;

/// Tools for the Linux page cache, asynchronous file I/O and directory trees.
#[derive(Parser)]
#[command(
    name = "nowait",
    version,
    max_term_width = 100,
    // The last one counts, as in du(1).
    args_override_self = true,
    after_long_help = "\
`nowait COMMAND --help` and the manual page nowait-COMMAND(1) describe a command. nowait(7) explains the terms.

Examples:
  nowait doctor .                what the kernel and this filesystem allow
  nowait demo .                  reads here, compared with pread and threads
  nowait fincore --top 10 /srv   the files with the most cached memory
  nowait warm data               reads the missing parts into the cache
  nowait scan -r --json /srv     every file, with its metadata
  nowait du -sh /srv             the space that it takes

Exit status:
  0    success
  1    some files failed, or the result is incomplete
  2    wrong usage
  130  interrupted; the results so far are printed
  134  memory was denied, as by `ulimit -v`: the program ended with SIGABRT"
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Reports what the kernel, the sandbox and a filesystem support, and what calls cost.
    Doctor(Deferred<doctor::Args>),
    /// Reads a file with pread(2), through threads and with nowait, and compares them.
    Demo(Deferred<demo::Args>),
    /// Shows how much of each file is in the page cache, without reading the files.
    Fincore(Deferred<fincore::Args>),
    /// Removes files from the page cache, and reports what stayed and why.
    Evict(Deferred<evict::Args>),
    /// Reads the missing parts of files into the page cache, within a memory budget.
    Warm(Deferred<warm::Args>),
    /// Keeps files resident in the page cache, within a budget.
    Keep(Deferred<keep::Args>),
    /// Saves which ranges of files are in the page cache, and restores them later.
    Cache(Deferred<cache::Args>),
    /// Prints the entries of directories, for scripts, in the order in which they are found.
    Scan(Deferred<scan::Args>),
    /// Shows the disk space used by directories and everything below them.
    Du(Deferred<du::Args>),
    /// Runs a program, and reads directories and files into the kernel's caches ahead of it.
    Run(Deferred<run::Args>),
    /// Shows and removes what `nowait run --learn` has learnt.
    Learn(Deferred<learn::Args>),
    /// Prints a manual page or the completions of a shell.
    #[command(hide = true)]
    Generate(Deferred<generate::Args>),
}

/// Parses the arguments, runs the verb and returns the exit code.
pub fn main() -> ExitCode {
    let verb = match Cli::try_parse() {
        Ok(arguments) => arguments.verb,
        Err(error) => return usage::report(&error),
    };
    let outcome = match verb {
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Demo(args) => demo::run(&args),
        Verb::Fincore(args) => fincore::run(&args),
        Verb::Evict(args) => evict::run(&args),
        Verb::Warm(args) => warm::run(&args),
        Verb::Keep(args) => keep::run(&args),
        Verb::Cache(args) => cache::run(&args),
        Verb::Scan(args) => scan::run(&args),
        Verb::Du(args) => du::run(&args),
        Verb::Run(args) => run::run(&args),
        Verb::Learn(args) => learn::run(&args),
        Verb::Generate(args) => generate::run(&args, Cli::command()),
    };
    outcome.unwrap_or_else(|message| {
        messages::say(format_args!("nowait: {message}"));
        ExitCode::from(1)
    })
}

#[cfg(test)]
mod tests {
    use clap::Command;
    use unicode_width::UnicodeWidthStr;

    use super::*;

    #[test]
    fn the_list_of_verbs_has_each_verbs_description() {
        let listed = Cli::command();
        let mut whole = Cli::command();
        whole.build();
        assert_eq!(compare(&listed, &whole), 11);
    }

    #[test]
    fn help_is_in_paragraphs_that_fit_into_a_narrow_terminal() {
        let mut verbs = 0;
        each_verb(Cli::command(), &mut |verb| {
            verbs += 1;
            // A line of a list that is too long would be wrapped like one of a paragraph.
            for text in [verb.get_after_help(), verb.get_after_long_help()] {
                let text = text.map(ToString::to_string).unwrap_or_default();
                for line in text.lines().filter(|line| line.starts_with(' ')) {
                    assert!(line.width() <= NARROW, "{}: {line}", verb.get_name());
                }
            }
            for help in [verb.render_help(), verb.render_long_help()] {
                let help = help.to_string();
                for line in help.lines() {
                    assert!(line.width() <= NARROW, "{}: {line}", verb.get_name());
                }
                let lines: Vec<&str> = help.lines().collect();
                for two in lines.windows(2) {
                    assert!(!is_ragged(two[0], two[1]), "{}: {two:?}", verb.get_name());
                }
            }
        });
        assert_eq!(verbs, 1 + 11 + 2 + 3);
    }

    const NARROW: usize = crate::help::LIST_WIDTH;

    #[test]
    fn descriptions_in_lists_fit_into_40_columns() {
        let mut descriptions = 0;
        each_verb(Cli::command(), &mut |verb| {
            for text in [verb.get_after_help(), verb.get_after_long_help()] {
                let text = text.map(ToString::to_string).unwrap_or_default();
                for line in crate::help::wrapped(&text, 40).lines() {
                    // clap wraps paragraphs, and items that are too long.
                    let is_item = text.lines().any(|whole| whole.starts_with(line));
                    assert!(line.width() <= 40 || is_item, "{}: {line}", verb.get_name());
                    descriptions += usize::from(!is_item);
                }
            }
        });
        assert!(descriptions > 100, "{descriptions}");
    }

    /// Calls `show` with every visible verb and its visible subcommands.
    fn each_verb(verb: Command, show: &mut impl FnMut(&mut Command)) {
        let mut verb = verb.term_width(NARROW);
        verb.build();
        show(&mut verb);
        let below = verb.get_subcommands().filter(|verb| !verb.is_hide_set());
        for verb in below.filter(|verb| verb.get_name() != "help") {
            each_verb(verb.clone(), show);
        }
    }

    /// Returns true if a line of a paragraph ends although the next word would fit. Paragraphs are
    /// indented like options or like their descriptions; other indentations are lists and examples.
    fn is_ragged(line: &str, next: &str) -> bool {
        let indent = |line: &str| line.len() - line.trim_start().len();
        let begins = |with: &str| next.trim_start().starts_with(with);
        let item = begins("- ") || begins("[");
        let Some(word) = next.split_whitespace().next().filter(|_| !item) else {
            return false;
        };
        let same = indent(line) == indent(next) && [0, 10].contains(&indent(line));
        same && !line.trim().is_empty() && line.width() + 1 + word.width() <= NARROW
    }

    /// Compares the visible subcommands and returns their number.
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
