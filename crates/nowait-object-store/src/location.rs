//! The files of locations: a location is the path of an object below the root, as object_store
//! writes it.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// The file of the object at `location`.
///
/// # Errors
/// [`Error::ReservedName`] if no object can have this name.
pub(crate) fn object_path(root: &Path, location: &str) -> Result<PathBuf, Error> {
    if is_object_name(location) {
        Ok(path(root, location))
    } else {
        Err(Error::ReservedName {
            name: location.to_owned(),
        })
    }
}

/// The file or directory at `location`. No component of a location is empty, `.` or `..`, so the
/// path does not leave the root. A symbolic link on the way may.
pub(crate) fn path(root: &Path, location: &str) -> PathBuf {
    if location.is_empty() {
        root.to_owned()
    } else {
        root.join(location)
    }
}

/// Returns true if an object may have this name. The root is none. A name that ends with the first
/// `#` in it and digits after that is one of a file that is being written: see [`crate::staged`].
pub(crate) fn is_object_name(location: &str) -> bool {
    let name = location.rsplit('/').next().unwrap_or_default();
    let digits = |suffix: &str| !suffix.is_empty() && suffix.bytes().all(|b| b.is_ascii_digit());
    match name.split_once('#') {
        Some((_, suffix)) => !digits(suffix),
        None => !name.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_valid_path() {
        for (name, valid) in [
            ("a", true),
            ("dir#1/a", true),
            ("dir#1/a#2.txt", true),
            ("dir/a#", true),
            ("dir/a#1#2", true),
            ("dir/a#١", true),
            ("dir#1/a#2", false),
            ("#0", false),
            ("", false),
        ] {
            assert_eq!(is_object_name(name), valid, "{name}");
        }
    }
}
