//! Parsers for files of /proc and of control groups. They work on bytes, because names of processes,
//! mounts and files may contain any bytes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The bytes of a file of /proc; empty if it cannot be read.
pub fn read(path: impl AsRef<Path>) -> Vec<u8> {
    std::fs::read(path).unwrap_or_default()
}

/// The lines of a text without their newlines.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.strip_suffix(b"\n")
        .unwrap_or(text)
        .split(|byte| *byte == b'\n')
}

/// The rest of the line that begins with a word, trimmed. The format is that of /proc/meminfo,
/// /proc/vmstat, /proc/PID/status and a cgroup's memory.stat.
pub fn value_of<'a>(text: &'a [u8], word: &str) -> Option<&'a [u8]> {
    lines(text).find_map(|line| {
        let rest = line.strip_prefix(word.as_bytes())?;
        let ends = rest.first().is_none_or(u8::is_ascii_whitespace);
        ends.then(|| rest.trim_ascii())
    })
}

/// The number after the word at the beginning of a line, without its unit.
pub fn number_of(text: &[u8], word: &str) -> Option<u64> {
    number(
        value_of(text, word)?
            .split(u8::is_ascii_whitespace)
            .next()?,
    )
}

/// Parses decimal digits. A sign is not accepted.
pub fn number(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    // `parse` accepts a sign.
    digits.parse().ok().filter(|_| !digits.starts_with('+'))
}

/// Decodes a path of mountinfo, where blanks, newlines and backslashes are written as a backslash
/// and three octal digits.
pub fn unescaped(escaped: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let digits = match behind {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if byte == b'\\' => [a, b, c],
            _ => {
                bytes.push(byte);
                continue;
            }
        };
        bytes.push(
            digits
                .iter()
                .fold(0, |value, digit| value << 3 | (**digit - b'0')),
        );
        rest = &behind[3..];
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_whole_words() {
        let text = b"MemFree: 7 kB\nMemAvailable:   12 kB\nName:\tb\xffd\n\nempty\n";
        assert_eq!(number_of(text, "MemAvailable:"), Some(12));
        assert_eq!(number_of(text, "Mem"), None);
        assert_eq!(number_of(text, "Name:"), None);
        assert_eq!(value_of(text, "Name:"), Some(&b"b\xffd"[..]));
        assert_eq!(value_of(text, "empty"), Some(&b""[..]));
        assert_eq!(
            number_of(b"pgscan_direct 18446744073709551616\n", "pgscan_direct"),
            None
        );
    }

    #[test]
    fn paths_may_have_any_bytes() {
        let point = unescaped(b"/mnt/a\\040-\\040b\\012\\134c\xff");
        assert_eq!(point, OsString::from_vec(b"/mnt/a - b\n\\c\xff".to_vec()));
        assert_eq!(unescaped(b"\\4\\0400\\777\\"), Path::new("\\4 0\\777\\"));
    }
}
