//! Reflows the text that follows the options in `--help`. The source breaks its lines, and clap wraps
//! each line by itself, so the lines of a paragraph are joined before clap wraps them.

use clap::Command;

/// Joins the lines of each paragraph in the help of a verb and its subcommands.
pub fn in_paragraphs(mut command: Command) -> Command {
    if let Some(text) = command.get_after_help().map(ToString::to_string) {
        command = command.after_help(joined(&text));
    }
    if let Some(text) = command.get_after_long_help().map(ToString::to_string) {
        command = command.after_long_help(joined(&text));
    }
    command.mut_subcommands(in_paragraphs)
}

/// Joins the lines of each paragraph to one line. Lines that begin with a space belong to a list or an
/// example and are kept.
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
}
