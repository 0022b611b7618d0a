//! File names for people and for programs. A file name may contain any bytes.

use std::borrow::Cow;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use nowait::DisplayPath;
use serde::Serialize;
use serde::ser::SerializeMap;

/// A path in JSON: `"path"`, and `"path_hex"` with its bytes if the path is not UTF-8.
#[derive(Serialize)]
pub struct Name<'a> {
    path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl<'a> Name<'a> {
    /// The name of this path.
    pub fn of(path: &'a Path) -> Name<'a> {
        let (path, path_hex) = text_and_hex(path.as_os_str().as_bytes());
        Name { path, path_hex }
    }
}

/// A file, directory or program for people. Names are printed by this, because others can choose them:
/// control sequences of a name would reach the terminal.
pub fn shown<P: AsRef<Path> + ?Sized>(path: &P) -> DisplayPath<'_> {
    DisplayPath(path.as_ref())
}

/// Text for people that may contain names in their original form, for example messages of libraries. Lines
/// that have control characters are quoted.
pub fn without_controls(text: &str) -> String {
    let lines = text.split('\n').map(|line| match line {
        "" => String::new(),
        line => shown(line).to_string(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Bytes as text, and in hexadecimal digits if they are not UTF-8.
pub fn text_and_hex(bytes: &[u8]) -> (Cow<'_, str>, Option<String>) {
    let hex = || {
        bytes.iter().fold(String::new(), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    };
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => (text.into(), None),
        replaced => (replaced, Some(hex())),
    }
}

/// Adds text to a JSON object, and a key that ends in `_hex` with its bytes if the text is not
/// UTF-8.
pub fn serialize_bytes<M: SerializeMap>(
    map: &mut M,
    key: &str,
    bytes: &[u8],
) -> Result<(), M::Error> {
    let (text, hex) = text_and_hex(bytes);
    map.serialize_entry(key, &text)?;
    match hex {
        Some(hex) => map.serialize_entry(&format!("{key}_hex"), &hex),
        None => Ok(()),
    }
}

/// The bytes of hexadecimal digits. `None` if they are none.
pub fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).map(|d| d as u8);
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect()
}

/// A count and its noun, which is singular for 1 and plural otherwise.
pub fn plural(count: u64, what: &str) -> String {
    match (count, what.strip_suffix('y')) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        _ if what.ends_with('s') => format!("{count} {what}es"),
        _ => format!("{count} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn control_sequences_of_messages_are_quoted() {
        let text = "one: two\n\n\u{1b}[31m: it's\n";
        assert_eq!(without_controls(text), "one: two\n\n$'\\033[31m: it\\'s'\n");
    }

    #[test]
    fn paths_that_are_not_utf8_have_their_bytes_in_hexadecimal() {
        let json = |bytes| serde_json::to_string(&Name::of(Path::new(OsStr::from_bytes(bytes))));
        assert_eq!(json(b"a\n\"b").unwrap(), r#"{"path":"a\n\"b"}"#);
        assert_eq!(
            json(b"a\xff").unwrap(),
            "{\"path\":\"a\u{fffd}\",\"path_hex\":\"61ff\"}"
        );
    }
}
