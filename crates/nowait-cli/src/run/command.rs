//! Reads the file of a program to find out if a preloaded library can watch it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::read::{ReadCache, ReadRef, SectionIndex};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::name::shown;

/// A reason why a preloaded library cannot watch a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Static,
    SetId,
    NotGlibc,
    Go,
    NotElf,
}

/// The note for the user about a program that cannot be watched. `None` if it can, or is not found.
pub fn note(name: &OsStr, ahead: bool) -> Option<String> {
    let path = find(name)?;
    let why = look(&path, 0)?;
    let walk = match ahead {
        true => ": use --walk PATH for the directories that it reads",
        false => "",
    };
    let shown = shown(&path);
    Some(match why {
        Why::Static => format!("{shown} is a static program and loads no library{walk}"),
        Why::SetId => format!("{shown} is setuid or setgid: libraries are not preloaded{walk}"),
        Why::NotGlibc => format!("{shown} has another C library than glibc{walk}"),
        Why::Go => format!("{shown} is written in Go, whose system calls no library sees{walk}"),
        Why::NotElf => {
            format!("{shown} is no 64-bit ELF program: libraries are not preloaded{walk}")
        }
    })
}

/// Returns true if a program that loads a library makes system calls that the library does not see.
pub fn is_unseen(path: &Path) -> bool {
    look(path, 0) == Some(Why::Go)
}

/// The file of a command, as execvp(3) finds it.
pub fn find(name: &OsStr) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| {
        file.is_file() && accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
    };
    if name.as_bytes().contains(&b'/') {
        return Some(name.into()).filter(is_program);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(is_program)
}

fn look(path: &Path, depth: usize) -> Option<Why> {
    let metadata = fs::metadata(path).ok()?;
    let is_other = metadata.uid() != rustix::process::geteuid().as_raw();
    if metadata.permissions().mode() & 0o4000 != 0 && is_other
        || metadata.permissions().mode() & 0o2000 != 0
    {
        return Some(Why::SetId);
    }
    let file = File::open(path).ok()?;
    let mut start = [0; 256];
    let len = file.read_at(&mut start, 0).ok()?;
    if let Some(script) = start[..len].strip_prefix(b"#!") {
        let line = script.split(|&byte| byte == b'\n').next()?;
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let interpreter = Path::new(OsStr::from_bytes(words.next()?));
        // The kernel allows four levels.
        return if depth < 4 {
            look(interpreter, depth + 1)
        } else {
            None
        };
    }
    // The ld.so(8) of glibc runs the program that is its argument.
    look_into(&ReadCache::new(file)).filter(|why| *why != Why::Static || !is_loader(path))
}

fn is_loader(path: &Path) -> bool {
    let path = fs::canonicalize(path).unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    name.as_bytes().starts_with(b"ld-linux")
}

/// Reads an ELF file. `None` if the program can be watched.
fn look_into<'a>(bytes: impl ReadRef<'a>) -> Option<Why> {
    let parsed = || -> object::read::Result<Option<Why>> {
        let header = FileHeader64::<Endianness>::parse(bytes)?;
        let endian = header.endian()?;
        // One read of all names of sections. A program need not have any.
        let sections = header.sections(endian, bytes)?;
        let names = header
            .shstrndx(endian, bytes)
            .and_then(|index| sections.section(SectionIndex(index as usize)))
            .and_then(|section| section.data(endian, bytes))
            .unwrap_or_default();
        let go = names
            .split(|&byte| byte == 0)
            .any(|name| name.ends_with(b".go.buildinfo"));
        for segment in header.program_headers(endian, bytes)? {
            if segment.p_type(endian) == PT_INTERP {
                let linker = segment.data(endian, bytes).unwrap_or_default();
                let file = linker
                    .rsplit(|&byte| byte == b'/')
                    .next()
                    .unwrap_or_default();
                return Ok(match file.starts_with(b"ld-linux") {
                    _ if go => Some(Why::Go),
                    true => None,
                    false => Some(Why::NotGlibc),
                });
            }
        }
        Ok(Some(Why::Static))
    };
    parsed().unwrap_or(Some(Why::NotElf))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_the_c_library_can_be_watched() {
        assert_eq!(look(Path::new("/bin/ls"), 0), None);
        assert_eq!(look(Path::new("/nowhere"), 0), None);
        let loaders = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
        let mut loaders = loaders.map(Path::new).into_iter().filter(|it| it.exists());
        assert_eq!(look(loaders.next().unwrap(), 0), None);
        assert_eq!(look_into(&b"text"[..]), Some(Why::NotElf));
        assert_eq!(look_into(&b"\x7fELF"[..]), Some(Why::NotElf));
    }

    #[test]
    fn scripts_are_as_their_interpreters_are() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        fs::write(&script, "#! /bin/sh -e\ntrue\n").unwrap();
        assert_eq!(look(&script, 0), None);
        fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        assert_eq!(look(&script, 0), None);
    }
}
