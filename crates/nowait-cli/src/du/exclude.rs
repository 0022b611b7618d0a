//! The patterns of `--exclude`.
#![allow(unsafe_code, reason = "calls fnmatch(3)")]

use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Patterns of fnmatch(3), as in du(1).
#[derive(Clone, Debug)]
pub struct Excluded(Arc<[CString]>);

impl Excluded {
    /// The patterns, as they are given.
    pub fn new(patterns: &[OsString]) -> Excluded {
        // An argument contains no NUL byte.
        let pattern = |pattern: &OsString| CString::new(pattern.as_bytes()).ok();
        Excluded(patterns.iter().filter_map(pattern).collect())
    }

    /// Returns true if a pattern matches the path, or the part of it after one of its slashes.
    pub fn matches(&self, path: &Path) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
            return false;
        };
        let path = path.as_bytes_with_nul();
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let starts = std::iter::once(0).chain(slashes.map(|(at, _)| at + 1));
        let mut parts = starts.filter_map(|at| CStr::from_bytes_with_nul(&path[at..]).ok());
        parts.any(|part| self.0.iter().any(|pattern| is_match(pattern, part)))
    }
}

fn is_match(pattern: &CStr, text: &CStr) -> bool {
    // SAFETY: both are C strings that live through the call.
    unsafe { libc::fnmatch(pattern.as_ptr(), text.as_ptr(), 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_any_number_of_last_components() {
        for (pattern, path, expected) in [
            ("*.o", "a/b.o", true),
            ("*.o", "a/b.c", false),
            ("b", "a/b", true),
            ("a/b", "x/a/b", true),
            ("a", "a/b", false),
            ("a*", "a/b", true),
            ("[!x]", "a/b", true),
            ("\\*", "a/*", true),
            ("?", "a/\u{e9}", false),
        ] {
            let excluded = Excluded::new(&[pattern.into()]);
            assert_eq!(
                excluded.matches(Path::new(path)),
                expected,
                "{pattern} {path}"
            );
        }
    }
}
