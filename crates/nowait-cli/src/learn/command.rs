//! The command of a profile. Its arguments may be secret: of these it has a checksum alone.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The command of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// The file of the program, or its name if that was not found.
    pub program: PathBuf,
    /// The SHA-256 of the program and the arguments, each followed by a zero byte, in hexadecimal.
    pub digest: String,
}

impl Command {
    /// The command of these words. `program` is the file of the first one, if it was found.
    pub fn of(words: &[OsString], program: Option<PathBuf>) -> Command {
        let program = program.and_then(|it| std::path::absolute(it).ok());
        let name = || words.first().map(PathBuf::from);
        let program = program.or_else(name).unwrap_or_default();
        let mut digest = Sha256::new();
        let arguments = words.iter().skip(1).map(OsString::as_os_str);
        for word in std::iter::once(program.as_os_str()).chain(arguments) {
            digest.update(word.as_bytes());
            digest.update([0]);
        }
        let mut hexadecimal = String::new();
        for byte in digest.finalize() {
            let _ = write!(hexadecimal, "{byte:02x}");
        }
        Command {
            program,
            digest: hexadecimal,
        }
    }

    /// The name of the profile of this command: that of the program, and a number that other commands hardly have.
    pub fn name(&self) -> OsString {
        let program = Path::new(&self.program).file_name();
        let program = program.map_or_else(Default::default, OsStr::to_string_lossy);
        let plain = |c: char| match c.is_ascii_alphanumeric() || c == '.' {
            true => c,
            false => '_',
        };
        let program: String = program.chars().take(40).map(plain).collect();
        format!("{}-{:.16}", program.trim_start_matches('.'), self.digest).into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::check_name;
    use super::*;

    fn of(words: &[&str]) -> Command {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        Command::of(&words, None)
    }

    #[test]
    fn commands_have_names_of_their_own() {
        let name = |words: &[&str]| of(words).name().into_string().unwrap();
        let python = |file| name(&["/usr/bin/python3", file]);
        assert_eq!(python("a.py"), python("a.py"));
        assert_ne!(python("a.py"), python("b.py"));
        assert_ne!(name(&["a", "bc"]), name(&["ab", "c"]));
        assert!(python("a.py").starts_with("python3-"));
        for word in ["/", "", "/a/.b", "/a/x y/\n"] {
            check_name(&name(&[word])).unwrap();
        }
    }

    /// `printf 'a\0secret\0' | sha256sum`
    #[test]
    fn the_arguments_are_in_the_checksum_alone() {
        let command = of(&["a", "secret"]);
        assert_eq!(command.program, Path::new("a"));
        assert_eq!(
            command.digest,
            "5c82dee8aea87a816c24e20ec75f67535d9841a2ab5de3994648d25b462fbf6d"
        );
    }
}
