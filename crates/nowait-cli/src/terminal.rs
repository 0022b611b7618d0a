//! The properties of standard output: its width, colours and characters beyond ASCII.

use std::io::IsTerminal;

/// The properties of standard output that decide how text is printed.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// The width in columns.
    pub width: usize,
    /// The height in lines, if standard output is a terminal.
    pub height: Option<usize>,
    /// True if standard output is a terminal.
    pub watched: bool,
    /// True if colours are printed: on a terminal, unless NO_COLOR is set to a non-empty value
    /// (no-color.org).
    pub colour: bool,
    /// True if the locale is UTF-8, so that block characters can be shown.
    pub unicode: bool,
}

/// The width if neither the terminal nor COLUMNS gives one.
const WIDTH: usize = 80;

impl Terminal {
    /// Looks at standard output and the environment.
    pub fn look() -> Terminal {
        let watched = std::io::stdout().is_terminal();
        Terminal {
            width: width(),
            height: rustix::termios::tcgetwinsize(std::io::stdout())
                .ok()
                .map(|size| size.ws_row.into())
                .filter(|&lines| lines > 0),
            watched,
            colour: watched && Terminal::wants_colour(),
            unicode: is_utf8(),
        }
    }
}

impl Terminal {
    /// Returns false if NO_COLOR is set to a non-empty value (no-color.org).
    pub fn wants_colour() -> bool {
        set("NO_COLOR").is_none()
    }
}

/// The width of the terminal, if standard output is one.
pub fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

fn width() -> usize {
    let given = || set("COLUMNS").and_then(|columns| columns.parse().ok());
    let given = || given().filter(|&columns| columns > 0);
    columns().or_else(given).unwrap_or(WIDTH)
}

/// Returns true if the locale is UTF-8. The first of these variables that is set decides, as in
/// setlocale(3).
fn is_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    locale.is_some_and(|name| {
        let name = name.to_ascii_lowercase();
        name.contains("utf-8") || name.contains("utf8")
    })
}

/// The value of an environment variable, if it is not empty.
fn set(name: &str) -> Option<String> {
    let value = std::env::var_os(name)?.to_string_lossy().into_owned();
    (!value.is_empty()).then_some(value)
}
