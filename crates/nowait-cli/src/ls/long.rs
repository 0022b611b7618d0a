//! A line of the long form, cell by cell.

use std::fmt::Write;

use chrono::{Local, TimeZone};
use nowait::FileType;
use nowait::Metadata;

use super::owner::Owners;

/// The cells before the name.
pub const CELLS: usize = 6;

/// Where cells are aligned to the right: numbers.
const RIGHT: [bool; CELLS] = [false, true, false, false, true, false];

/// How wide the columns are, so far: lines that stream by can't be waited for.
#[derive(Default)]
pub struct Widths([usize; CELLS]);

/// Mode, links, owner, group, size and time.
pub struct Cells([String; CELLS]);

impl Cells {
    /// Of a file; nothing is known of it if there is no `stat`.
    pub fn of(kind: FileType, stat: Option<&Metadata>, owners: &mut Owners) -> Cells {
        let Some(stat) = stat else {
            let mut cells = [const { String::new() }; CELLS].map(|_| "?".to_owned());
            cells[0] = format!("{}?????????", letter(kind));
            return Cells(cells);
        };
        let named = |name: Option<&str>, id: u32| match name {
            Some(name) => name.to_owned(),
            None => id.to_string(),
        };
        Cells([
            mode(kind, stat.mode()),
            stat.nlink().to_string(),
            named(owners.users.name(stat.uid()), stat.uid()),
            named(owners.groups.name(stat.gid()), stat.gid()),
            match kind {
                FileType::CharDevice | FileType::BlockDevice => {
                    format!(
                        "{}, {}",
                        rustix::fs::major(stat.rdev()),
                        rustix::fs::minor(stat.rdev())
                    )
                }
                _ => stat.len().to_string(),
            },
            time(stat.mtime()),
        ])
    }
}

impl Widths {
    /// Makes room for these.
    pub fn take_in(&mut self, cells: &Cells) {
        for (width, cell) in self.0.iter_mut().zip(&cells.0) {
            *width = cell.chars().count().max(*width);
        }
    }

    /// Aligned, with a blank behind each.
    pub fn write(&self, cells: &Cells, line: &mut String) {
        for ((cell, &width), right) in cells.0.iter().zip(&self.0).zip(RIGHT) {
            // Writing to a string can't fail.
            let _ = match right {
                true => write!(line, "{cell:>width$} "),
                false => write!(line, "{cell:<width$} "),
            };
        }
    }
}

/// As ls writes it: `drwxr-xr-x`.
fn mode(kind: FileType, mode: u32) -> String {
    let mut text = String::with_capacity(10);
    text.push(letter(kind));
    // Whose, the bit beside execution that is theirs, and its letter.
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

fn letter(kind: FileType) -> char {
    match kind {
        FileType::File => '-',
        FileType::Dir => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Unknown => '?',
    }
}

/// In local time. What no calendar has is told in seconds since 1970.
fn time(seconds: i64) -> String {
    match Local.timestamp_opt(seconds, 0).single() {
        Some(time) => time.format("%Y-%m-%d %H:%M").to_string(),
        None => format!("@{seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_as_ls_does() {
        for (kind, bits, text) in [
            (FileType::File, 0o644, "-rw-r--r--"),
            (FileType::Dir, 0o1777, "drwxrwxrwt"),
            (FileType::Dir, 0o1776, "drwxrwxrwT"),
            (FileType::File, 0o4755, "-rwsr-xr-x"),
            (FileType::File, 0o6644, "-rwSr-Sr--"),
            (FileType::Symlink, 0o777, "lrwxrwxrwx"),
        ] {
            assert_eq!(mode(kind, bits), text);
        }
    }

    #[test]
    fn times_beyond_any_calendar_are_told() {
        assert_eq!(time(i64::MAX), format!("@{}", i64::MAX));
        assert_eq!(time(1_700_000_000).len(), "2023-11-14 22:13".len());
    }
}
