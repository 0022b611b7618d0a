//! What standard output can show: how wide it is, whether in colour, whether more than ASCII.

use std::io::IsTerminal;

/// How text for people is to look.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// Columns.
    pub width: usize,
    /// Whether somebody watches.
    pub watched: bool,
    /// Whether escape sequences for colours are wanted: NO_COLOR, set to anything but nothing, says
    /// no (no-color.org).
    pub colour: bool,
    /// Whether block characters can be shown.
    pub unicode: bool,
}

/// Where nobody says how wide it is.
const WIDTH: usize = 80;

impl Terminal {
    /// As standard output and the environment have it.
    pub fn look() -> Terminal {
        let watched = std::io::stdout().is_terminal();
        Terminal {
            width: width(),
            watched,
            colour: watched && set("NO_COLOR").is_none(),
            unicode: is_utf8(),
        }
    }
}

fn width() -> usize {
    let asked = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| size.ws_col);
    let given = || set("COLUMNS").and_then(|columns| columns.parse().ok());
    match asked {
        0 => given().filter(|&columns| columns > 0).unwrap_or(WIDTH),
        columns => usize::from(columns),
    }
}

/// The first of these that is set decides, as in setlocale(3).
fn is_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    locale.is_some_and(|name| {
        let name = name.to_ascii_lowercase();
        name.contains("utf-8") || name.contains("utf8")
    })
}

/// A variable that is set to something.
fn set(name: &str) -> Option<String> {
    let value = std::env::var_os(name)?.to_string_lossy().into_owned();
    (!value.is_empty()).then_some(value)
}
