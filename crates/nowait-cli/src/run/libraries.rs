//! The preload libraries: where they are, and the environment that loads them and names the
//! channel.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use nowait_ahead_channel::{Channel, Listening, VARIABLE};

use crate::problem::Problem;

/// The environment variable with the directory of the libraries.
const DIRECTORY: &str = "NOWAIT_LIBRARY_DIR";
const PRELOAD: &str = "LD_PRELOAD";

/// Adds libraries to the LD_PRELOAD of a command, behind those that are there.
pub fn preload<'a>(
    command: &mut Command,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), Problem> {
    let mut value = std::env::var_os(PRELOAD).unwrap_or_default();
    let before = value.clone();
    for name in names {
        add(&mut value, find(name)?.as_os_str());
    }
    if value != before {
        command.env(PRELOAD, value);
    }
    Ok(())
}

/// Creates a channel, and names it in the environment of a command. The programs open it by the
/// descriptor.
pub fn channel(command: &mut Command, to: Listening) -> Result<(Channel, OwnedFd), Problem> {
    let key = RandomState::new().build_hasher().finish();
    let (channel, memory) =
        Channel::create(key).map_err(|e| Problem::of("cannot make shared memory", e))?;
    channel.listen(to);
    let (pid, fd) = (std::process::id(), memory.as_raw_fd());
    command.env(VARIABLE, format!("/proc/{pid}/fd/{fd}:{key:x}"));
    Ok((channel, memory))
}

fn add(list: &mut OsString, library: &OsStr) {
    if !list.is_empty() {
        list.push(":");
    }
    list.push(library);
}

/// Finds a library: in the directory of the environment, beside the program, or where `make
/// install` and the Debian packages put libraries. Returns a path that ld.so(8) expands, so that a
/// program which cannot load the library does not try to; see scripts/preload-directory.sh.
fn find(name: &str) -> Result<PathBuf, Problem> {
    let program = std::env::current_exe().unwrap_or_default();
    let beside = program.parent().unwrap_or(Path::new("/"));
    let mut directories = vec![beside.to_owned()];
    for lib in [
        "lib/nowait",
        "lib/x86_64-linux-gnu/nowait",
        "lib/aarch64-linux-gnu/nowait",
    ] {
        directories.push(beside.join("..").join(lib));
    }
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        directories = vec![directory.into()];
    }
    let found = directories.iter().find_map(|directory| {
        let preload = directory.join("preload").canonicalize().ok()?;
        let platforms = preload.join("libasan.so");
        let is_there = platforms.join(std::env::consts::ARCH).join(name).is_file();
        is_there.then(|| platforms.join("$PLATFORM").join(name))
    });
    let found = found.ok_or_else(|| {
        let first = directories[0].display();
        Problem::Failed(format!(
            "preload/libasan.so/{}/{name} is not in {first}, nor where it is installed: set {DIRECTORY} to its directory",
            std::env::consts::ARCH
        ))
    })?;
    // ld.so(8) splits the list at colons and spaces, and has no way to quote them.
    match found
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .any(|byte| b": ".contains(byte))
    {
        true => Err(Problem::Failed(format!(
            "{} cannot be preloaded: its path has a space or a colon",
            found.display()
        ))),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_continued() {
        let mut list = OsString::new();
        add(&mut list, "/a.so".as_ref());
        add(&mut list, "/b.so".as_ref());
        assert_eq!(list, "/a.so:/b.so");
    }
}
