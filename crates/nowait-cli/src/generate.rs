//! `nowait generate` prints the manual pages and the completions of shells. Both are made from the
//! definitions of the options.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use roff::{Roff, bold, italic, roman};

use crate::output::Output;
use crate::problem::Problem;
use crate::terminal::Terminal;

/// Prints a manual page or the completions of a shell.
#[derive(clap::Args)]
#[command(after_long_help = "\
Without NAME, prints the names of all files.

Examples:
  source <(nowait generate nowait.bash)       completions in this bash
  nowait generate _nowait >DIR/_nowait        for zsh; DIR is in $fpath
  nowait generate nowait.fish | source        completions in this fish
  nowait generate nowait-du.1 | man -l -      a manual page

Exit status:
  0  success
  1  failure
  2  wrong usage")]
pub struct Args {
    /// The name of the file
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// The date of the manual pages: that of the release.
const DATE: &str = "2026-11-22";

/// Completions: the name of the file where the shell looks for it.
const COMPLETIONS: [(&str, Shell); 3] = [
    ("nowait.bash", Shell::Bash),
    ("_nowait", Shell::Zsh),
    ("nowait.fish", Shell::Fish),
];

/// Runs the verb. `program` describes all verbs.
pub fn run(args: &Args, program: Command) -> Result<ExitCode, String> {
    Ok(print(args, program).unwrap_or_else(|problem| problem.report()))
}

fn print(args: &Args, mut program: Command) -> Result<ExitCode, Problem> {
    program.build();
    let pages = pages(&program);
    let mut out = Output::new(Terminal::look());
    let Some(name) = &args.name else {
        let completions = COMPLETIONS.iter().map(|(name, _)| (*name).to_owned());
        for name in completions.chain(pages.iter().map(file_name)) {
            writeln!(out, "{name}")?;
        }
        return Ok(out.flush().map(|()| ExitCode::SUCCESS)?);
    };
    if let Some((_, shell)) = COMPLETIONS.iter().find(|(known, _)| known == name) {
        // It panics if the output cannot be written.
        let mut text = Vec::new();
        clap_complete::generate(*shell, &mut program, "nowait", &mut text);
        out.write_all(&text)?;
    } else if let Some(page) = pages.iter().find(|page| file_name(page) == *name) {
        write_page(page, &pages, &mut out)?;
    } else {
        return Err(Problem::Usage(format!(
            "there is no file `{name}`; `nowait generate` lists them"
        )));
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The commands that have manual pages: the program and its verbs.
fn pages(program: &Command) -> Vec<Command> {
    let mut pages = vec![program.clone()];
    let mut at = 0;
    while at < pages.len() {
        let below: Vec<_> = pages[at]
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
            .cloned()
            .collect();
        pages.extend(below);
        at += 1;
    }
    pages
}

/// The name of the page: the words of the command with hyphens between them.
fn page_name(page: &Command) -> String {
    let words = page.get_bin_name().unwrap_or_else(|| page.get_name());
    words.replace(' ', "-")
}

fn file_name(page: &Command) -> String {
    format!("{}.1", page_name(page))
}

fn write_page(page: &Command, pages: &[Command], to: &mut impl Write) -> io::Result<()> {
    let name = page_name(page);
    let mut text = Vec::new();
    write_unwrapped(page, pages, &name, &mut text)?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    let mut kept = false;
    for (at, &line) in lines.iter().enumerate() {
        let is_paragraph = |at: usize| lines.get(at).is_some_and(|line| line.is_empty());
        if line == ".br" && (is_paragraph(at + 1) || is_paragraph(at.wrapping_sub(1))) {
            continue;
        }
        match line {
            "" => {
                writeln!(to, ".sp")?;
                continue;
            }
            ".nf" => kept = true,
            ".fi" => kept = false,
            _ => {}
        }
        match kept || line.starts_with('.') {
            true => writeln!(to, "{line}")?,
            false => wrap(line, to)?,
        }
    }
    Ok(())
}

/// The longest line of the source in bytes, as mandoc(1) advises.
const LINE: usize = 80;

/// Breaks a line of text between words. A line does not begin with a control character.
fn wrap(line: &str, to: &mut impl Write) -> io::Result<()> {
    let mut length = 0;
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        let may_begin = !word.starts_with(['.', '\'']);
        if length > 0 && length + 1 + word.len() > LINE && may_begin {
            writeln!(to)?;
            length = 0;
        }
        if length > 0 {
            write!(to, " ")?;
            length += 1;
        }
        write!(to, "{word}")?;
        length += word.len();
    }
    writeln!(to)
}

fn write_unwrapped(
    page: &Command,
    pages: &[Command],
    name: &str,
    to: &mut impl Write,
) -> io::Result<()> {
    let man = Man::new(page.clone().display_name(name))
        .title(name.to_uppercase())
        .date(DATE)
        .source(concat!("nowait ", env!("CARGO_PKG_VERSION")))
        .manual("User Commands");
    man.render_title(to)?;
    man.render_name_section(to)?;
    man.render_synopsis_section(to)?;
    man.render_description_section(to)?;
    let mut rest = Roff::new();
    verbs(page, &mut rest);
    rest.to_writer(to)?;
    if page.get_arguments().any(|option| !option.is_hide_set()) {
        man.render_options_section(to)?;
    }
    let mut rest = Roff::new();
    let help = page.get_after_long_help().or(page.get_after_help());
    sections(
        &help.map(ToString::to_string).unwrap_or_default(),
        &mut rest,
    );
    see_also(name, pages, &mut rest);
    rest.to_writer(to)
}

/// The verbs of the program, or of a verb.
fn verbs(page: &Command, to: &mut Roff) {
    let verbs = page
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    for (at, verb) in verbs.enumerate() {
        if at == 0 {
            to.control("SH", ["COMMANDS"]);
        }
        let about = verb.get_about().map(ToString::to_string);
        to.control("TP", []);
        to.text([bold(verb.get_name())]);
        to.text([roman(about.unwrap_or_default())]);
    }
}

/// The paragraphs that have sections of their own: how they begin, and the titles.
const SECTIONS: [(&str, &str); 4] = [
    ("Examples:", "EXAMPLES"),
    ("Exit status:", "EXIT STATUS"),
    ("Environment:", "ENVIRONMENT"),
    ("JSON (", "JSON OUTPUT"),
];

/// The text that follows the options in the help. Lines that begin with a blank are lists or
/// examples, whose breaks are kept.
fn sections(text: &str, to: &mut Roff) {
    let mut kept = false;
    let mut is_new = true;
    let mut title = "";
    for line in text.lines() {
        let is_kept = line.starts_with(' ');
        if kept && !is_kept {
            to.control("fi", []);
            kept = false;
        }
        if line.is_empty() {
            is_new = true;
            continue;
        }
        let section = SECTIONS.iter().find(|(start, _)| line.starts_with(start));
        let next = section.map_or_else(
            || if title.is_empty() { "DETAILS" } else { title },
            |found| found.1,
        );
        if next != title {
            to.control("SH", [next]);
            title = next;
        } else if is_new {
            to.control("PP", []);
        }
        is_new = false;
        match section {
            // The title says it.
            Some((start, _)) if line == *start => {}
            _ if is_kept => {
                if !kept {
                    to.control("nf", []);
                    kept = true;
                }
                to.text([roman(line)]);
            }
            _ => _ = to.text([roman(line)]),
        }
    }
    if kept {
        to.control("fi", []);
    }
}

/// The other pages.
fn see_also(name: &str, pages: &[Command], to: &mut Roff) {
    let mut others: Vec<_> = pages
        .iter()
        .map(page_name)
        .filter(|page| page != name)
        .collect();
    others.sort();
    let mut words = Vec::new();
    for page in others {
        words.extend([italic(page), roman("(1), ")]);
    }
    words.extend([
        italic("nowait"),
        roman("(7), "),
        italic("nowait-aio"),
        roman("(7)"),
    ]);
    to.control("SH", ["SEE ALSO"]);
    to.text(words);
}
