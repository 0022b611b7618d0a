//! Reflows the text that follows the options in `--help`. The source breaks its lines, and clap
//! wraps each line by itself, so the lines of a paragraph are joined before clap wraps them. The
//! lines of lists have at most 80 columns. In a narrower terminal they are wrapped here.

use std::borrow::Cow;

use clap::Command;

use crate::terminal;

/// The width of the lists in the source.
pub const LIST_WIDTH: usize = 80;
/// The columns before the description of an item of a list that still stands on the item's line in
/// a narrow terminal.
const HANGING: usize = 8;

/// Joins the lines of each paragraph in the help of a verb and its subcommands, and wraps lists if
/// the terminal is narrow.
pub fn in_paragraphs(command: Command) -> Command {
    let narrow = terminal::columns().filter(|width| *width < LIST_WIDTH);
    reflowed(command, narrow)
}

fn reflowed(mut command: Command, narrow: Option<usize>) -> Command {
    let reflow = |text: &str| {
        let text = joined(text);
        match narrow {
            Some(width) => wrapped(&text, width),
            None => text,
        }
    };
    if let Some(text) = command.get_after_help().map(ToString::to_string) {
        command = command.after_help(reflow(&text));
    }
    if let Some(text) = command.get_after_long_help().map(ToString::to_string) {
        command = command.after_long_help(reflow(&text));
    }
    command.mut_subcommands(|command| reflowed(command, narrow))
}

/// Joins the lines of each paragraph to one line. Lines that begin with a space belong to a list or
/// an example and are kept.
fn joined(text: &str) -> String {
    let flows = |line: &str| !line.is_empty() && !line.starts_with(' ');
    let mut joined = String::with_capacity(text.len());
    let mut before = "";
    for line in text.lines() {
        if !joined.is_empty() {
            joined.push(if flows(before) && flows(line) {
                ' '
            } else {
                '\n'
            });
        }
        joined.push_str(line);
        before = line;
    }
    joined
}

/// Wraps the lines that begin with a space: an item, two or more spaces, and its description. Lines
/// below the description continue it. A long item has its description on the next line.
pub fn wrapped(text: &str, width: usize) -> String {
    let indent_of = |line: &str| line.len() - line.trim_start().len();
    let mut wrapped = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let indent = indent_of(line);
        if indent == 0 {
            wrapped.push(line.to_owned());
            continue;
        }
        let item = line.trim_start();
        let (item, rest) = item.split_once("  ").unwrap_or((item, ""));
        let mut description = rest.trim_start().to_owned();
        let column = line.len() - description.len();
        while let Some(next) = lines.next_if(|next| indent_of(next) > indent + 4) {
            description.push(' ');
            description.push_str(next.trim_start());
        }
        let item = format!("{:indent$}{item}", "");
        if description.is_empty() {
            wrapped.push(item);
            continue;
        }
        let (first, below) = if column <= HANGING {
            (format!("{item:column$}"), column)
        } else {
            wrapped.push(item);
            (" ".repeat(indent + 4), indent + 4)
        };
        let below = " ".repeat(below);
        let options = textwrap::Options::new(width)
            .initial_indent(&first)
            .subsequent_indent(&below)
            .break_words(false)
            .word_splitter(textwrap::WordSplitter::NoHyphenation);
        let lines = textwrap::wrap(&description, options);
        wrapped.extend(lines.into_iter().map(Cow::into_owned));
    }
    wrapped.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_joined_and_lists_are_kept() {
        let text = "one\ntwo\n\nthree:\n  a  b\n     c\nfour\nfive";
        let paragraphs = "one two\n\nthree:\n  a  b\n     c\nfour five";
        assert_eq!(joined(text), paragraphs);
        assert_eq!(joined(paragraphs), paragraphs);
    }

    #[test]
    fn lists_are_wrapped_below_their_items() {
        let text = "Exit status:\n  0    success\n  1    some files failed, or\n       others\n\n\
                    Examples:\n  nowait du     all of them";
        let wrapped_text = "Exit status:\n  0    success\n  1    some files\n       failed, or\n       others\n\n\
                            Examples:\n  nowait du\n      all of them";
        assert_eq!(wrapped(text, 18), wrapped_text);
    }
}
