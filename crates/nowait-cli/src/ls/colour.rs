//! Colours of names, as `LS_COLORS` has them (dircolors(1)), or as ls has them where that is not set.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;

use nowait::FileType;

use super::row::Row;

/// What dircolors(1) has for kinds of files.
const USUAL: &str = "di=01;34:ln=01;36:pi=33:so=01;35:bd=01;33:cd=01;33:su=37;41:sg=30;43:tw=30;42:\
ow=34;42:st=37;44:ex=01;32";

/// The digits of a colour's escape sequence.
pub struct Colours {
    /// By the two letters that stand for a kind.
    kinds: HashMap<String, String>,
    /// By the end of a name. The last that fits is taken.
    ends: Vec<(Vec<u8>, String)>,
}

impl Colours {
    /// As the environment has them.
    pub fn look() -> Colours {
        match std::env::var("LS_COLORS") {
            Ok(text) if !text.is_empty() => Colours::read(&text),
            _ => Colours::read(USUAL),
        }
    }

    fn read(text: &str) -> Colours {
        let mut colours = Colours {
            kinds: HashMap::new(),
            ends: Vec::new(),
        };
        for (what, code) in text.split(':').filter_map(|word| word.split_once('=')) {
            // Nothing else is a colour: `ln=target` is none, and no word can end the sequence.
            if code.is_empty() || !code.bytes().all(|b| b.is_ascii_digit() || b == b';') {
                continue;
            }
            match what.strip_prefix('*') {
                Some(end) => colours.ends.push((end.into(), code.into())),
                None => _ = colours.kinds.insert(what.into(), code.into()),
            }
        }
        colours
    }

    /// The colour of a name, if it has one.
    pub fn of(&self, row: &Row<'_>) -> Option<&str> {
        let mode = row.stat.map_or(0, |stat| stat.mode());
        let has = |bits: u32| mode & bits == bits;
        let kind = match row.kind {
            FileType::Dir if has(0o1002) => "tw",
            FileType::Dir if has(0o0002) => "ow",
            FileType::Dir if has(0o1000) => "st",
            FileType::Dir => "di",
            FileType::Symlink => "ln",
            FileType::Fifo => "pi",
            FileType::Socket => "so",
            FileType::BlockDevice => "bd",
            FileType::CharDevice => "cd",
            FileType::File if has(0o4000) => "su",
            FileType::File if has(0o2000) => "sg",
            FileType::File if mode & 0o111 != 0 => "ex",
            FileType::File => return self.by_end(row).or(self.by_kind("fi")),
            FileType::Unknown => return None,
        };
        self.by_kind(kind)
    }

    fn by_kind(&self, kind: &str) -> Option<&str> {
        self.kinds.get(kind).map(String::as_str)
    }

    fn by_end(&self, row: &Row<'_>) -> Option<&str> {
        let name = row.name.as_bytes();
        let fits = |(end, _): &&(Vec<u8>, String)| name.ends_with(end);
        let (_, code) = self.ends.iter().rev().find(fits)?;
        Some(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colours_are_taken_from_the_environment() {
        let colours = Colours::read("di=01;34:*.c=33:*.tar.c=35:ln=target:ex=\x1b]0;x:bad:=");
        assert_eq!(colours.by_kind("di"), Some("01;34"));
        assert_eq!(colours.by_kind("ln"), None);
        assert_eq!(colours.by_kind("ex"), None);
        assert_eq!(colours.ends.len(), 2);
    }
}
