//! The texts behind the options in `--help`, as any width takes them: their lines are broken in the
//! source, and clap, which wraps lines, knows of no paragraphs.

use clap::Command;

/// Has a verb and those below it say their texts in paragraphs.
pub fn in_paragraphs(mut command: Command) -> Command {
    if let Some(text) = command.get_after_help().map(ToString::to_string) {
        command = command.after_help(joined(&text));
    }
    if let Some(text) = command.get_after_long_help().map(ToString::to_string) {
        command = command.after_long_help(joined(&text));
    }
    command.mut_subcommands(in_paragraphs)
}

/// Makes one line of the lines of each paragraph. Lines that begin with a space are of a list or of
/// an example, and stay as they are.
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
    fn paragraphs_become_lines_and_lists_stay() {
        let text = "one\ntwo\n\nthree:\n  a  b\n     c\nfour\nfive";
        let paragraphs = "one two\n\nthree:\n  a  b\n     c\nfour five";
        assert_eq!(joined(text), paragraphs);
        assert_eq!(joined(paragraphs), paragraphs);
    }
}
