//! A file's name as people and as programs can read it, whatever bytes it is made of.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;

/// A path for people: as it is, or where it would break the line or hide something, in the quotes
/// that shells take (`$'a\nb'`).
pub struct Shown<'a>(pub &'a Path);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.as_os_str().as_bytes();
        match std::str::from_utf8(bytes) {
            Ok("") => f.write_str("''"),
            Ok(text) if !text.chars().any(misleads) => f.pad(text),
            _ => quoted(f, bytes),
        }
    }
}

/// What moves the cursor, or changes the direction in which a terminal writes.
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

/// In octal: unlike hexadecimal digits, three octal ones never run into what follows.
fn escaped(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\{byte:03o}"))
}

/// A path for programs: `"path"`, and where that is not the whole truth also `"path_hex"`, its bytes.
#[derive(Serialize)]
pub struct Name<'a> {
    path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl<'a> Name<'a> {
    /// Of this path.
    pub fn of(path: &'a Path) -> Name<'a> {
        let (path, path_hex) = told(path.as_os_str().as_bytes());
        Name { path, path_hex }
    }
}

/// Bytes for programs: as text, and where that is not the whole truth also in hexadecimal digits.
pub fn told(bytes: &[u8]) -> (Cow<'_, str>, Option<String>) {
    let hex = || {
        bytes.iter().fold(String::new(), |mut hex, byte| {
            // Writing to a string can't fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    };
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => (text.into(), None),
        replaced => (replaced, Some(hex())),
    }
}

/// A count of something.
pub fn plural(count: u64, what: &str) -> String {
    match (count, what.ends_with('s')) {
        (1, _) => format!("1 {what}"),
        (_, true) => format!("{count} {what}es"),
        (_, false) => format!("{count} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn shown(bytes: &[u8]) -> String {
        Shown(Path::new(OsStr::from_bytes(bytes))).to_string()
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

    #[test]
    fn bytes_are_told_where_text_is_not_the_truth() {
        let json = |bytes| serde_json::to_string(&Name::of(Path::new(OsStr::from_bytes(bytes))));
        assert_eq!(json(b"a\n\"b").unwrap(), r#"{"path":"a\n\"b"}"#);
        assert_eq!(
            json(b"a\xff").unwrap(),
            "{\"path\":\"a\u{fffd}\",\"path_hex\":\"61ff\"}"
        );
    }
}
