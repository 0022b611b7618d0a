//! The output of the parser of arguments: help, the version, and wrong usage.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::Error;

use crate::messages::say;
use crate::name::{shown, without_controls};
use crate::problem::Problem;
use crate::terminal::Terminal;

/// Prints help or the version on standard output, or wrong usage on standard error. Returns the exit code.
pub fn report(error: &Error) -> ExitCode {
    let styled = error.render();
    if error.use_stderr() {
        let text = quoted(styled.to_string(), std::env::args_os().skip(1));
        let is_plain = text == styled.to_string();
        match is_plain && io::stderr().is_terminal() && Terminal::wants_colour() {
            true => _ = write!(io::stderr(), "{}", styled.ansi()),
            false => say(text.trim_end_matches('\n')),
        }
        return ExitCode::from(2);
    }
    let mut out = io::stdout();
    let written = match Terminal::look().colour {
        true => write!(out, "{}", styled.ansi()),
        false => write!(out, "{styled}"),
    };
    match written.and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Problem::from(error).report(),
    }
}

/// A message in which arguments with control characters are quoted. A shell makes arguments of file names.
fn quoted(mut text: String, arguments: impl Iterator<Item = OsString>) -> String {
    for argument in arguments {
        let value = argument.as_bytes().splitn(2, |byte| *byte == b'=').nth(1);
        for part in [Some(argument.as_bytes()), value].into_iter().flatten() {
            let part = String::from_utf8_lossy(part);
            let plain = shown(&*part).to_string();
            if !part.is_empty() && plain != part {
                text = text.replace(&*part, &plain);
            }
        }
    }
    without_controls(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted() {
        let text = "error: unexpected argument '--a\nb' found, 'x\u{1b}' is wrong\n";
        let arguments = ["--a\nb", "--size=x\u{1b}", "plain"].map(OsString::from);
        assert_eq!(
            quoted(text.to_owned(), arguments.into_iter()),
            "error: unexpected argument '$'--a\\nb'' found, '$'x\\033'' is wrong\n"
        );
    }
}
