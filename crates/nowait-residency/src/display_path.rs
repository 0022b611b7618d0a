//! Paths for display, whatever bytes they contain.

use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Displays a path. It is printed unchanged, or quoted for a shell (`$'a\nb'`) if it contains line
/// breaks, control characters, characters that change the text direction, or invalid UTF-8. File
/// names can be chosen by other users.
///
/// ```
/// assert_eq!(nowait_residency::DisplayPath("plain name".as_ref()).to_string(), "plain name");
/// assert_eq!(nowait_residency::DisplayPath("a\nb".as_ref()).to_string(), r"$'a\nb'");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DisplayPath<'a>(pub &'a Path);

impl fmt::Display for DisplayPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.as_os_str().as_bytes();
        match std::str::from_utf8(bytes) {
            Ok("") => f.write_str("''"),
            Ok(text) if !text.chars().any(misleads) => f.pad(text),
            _ => quoted(f, bytes),
        }
    }
}

/// Returns true for control characters and for those that change the direction of the text.
fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn quoted(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_str("$'")?;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                '\r' => f.write_str("\\r")?,
                '\'' | '\\' => write!(f, "\\{c}")?,
                c if misleads(c) => escaped(f, c.encode_utf8(&mut [0; 4]).as_bytes())?,
                c => f.write_char(c)?,
            }
        }
        escaped(f, chunk.invalid())?;
    }
    f.write_char('\'')
}

/// Writes bytes as octal escapes. Three octal digits, unlike hexadecimal ones, never combine with a
/// following character.
fn escaped(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\{byte:03o}"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn shown(bytes: &[u8]) -> String {
        DisplayPath(Path::new(OsStr::from_bytes(bytes))).to_string()
    }

    #[test]
    fn names_never_break_the_line_and_can_be_pasted() {
        for (bytes, text) in [
            (&b"plain name"[..], "plain name"),
            ("größe".as_bytes(), "größe"),
            (b"a\nb", r"$'a\nb'"),
            (b"it's\x07", r"$'it\'s\007'"),
            (b"\xff1", r"$'\3771'"),
            ("\u{202e}txt".as_bytes(), r"$'\342\200\256txt'"),
            (b"", "''"),
        ] {
            assert_eq!(shown(bytes), text);
        }
    }
}
