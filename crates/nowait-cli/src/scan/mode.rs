//! File types and permission bits as ls(1) prints them: `drwxr-xr-x`.

use nowait::FileType;

/// The type and the permission bits, ten letters.
pub fn symbolic(kind: FileType, mode: u32) -> String {
    let mut text = String::with_capacity(10);
    text.push(match kind {
        FileType::File => '-',
        FileType::Unknown => '?',
        kind => letter(kind),
    });
    // The position of the bits of owner, group and others; the special bit, and its letter.
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// The letter of a file type, as `find -type` takes it; U if the type is unknown.
pub fn letter(kind: FileType) -> char {
    match kind {
        FileType::File => 'f',
        FileType::Dir => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Unknown => 'U',
    }
}

/// The name of a file type in JSON.
pub fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::File => "file",
        FileType::Dir => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharDevice => "character",
        FileType::BlockDevice => "block",
        FileType::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_printed_as_by_ls() {
        for (kind, bits, text) in [
            (FileType::File, 0o644, "-rw-r--r--"),
            (FileType::Dir, 0o1777, "drwxrwxrwt"),
            (FileType::Dir, 0o1776, "drwxrwxrwT"),
            (FileType::File, 0o4755, "-rwsr-xr-x"),
            (FileType::File, 0o6644, "-rwSr-Sr--"),
            (FileType::Symlink, 0o777, "lrwxrwxrwx"),
        ] {
            assert_eq!(symbolic(kind, bits), text);
        }
    }
}
