//! The preload libraries: where they are, and the environment that loads them and names the
//! channel.

use std::env::consts::ARCH;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::name::shown;
use crate::problem::Problem;

/// The environment variable with the directory of the libraries.
const DIRECTORY: &str = "NOWAIT_LIBRARY_DIR";
pub const PRELOAD: &str = "LD_PRELOAD";

/// Returns the value of LD_PRELOAD with these libraries behind those that are there. `None` without libraries.
pub fn preload<'a>(names: impl Iterator<Item = &'a str>) -> Result<Option<OsString>, Problem> {
    let before = std::env::var_os(PRELOAD).unwrap_or_default();
    let mut value = before.clone();
    for name in names {
        add(&mut value, find(name)?.as_os_str());
    }
    Ok((value != before).then_some(value))
}

/// Returns true if a library is found.
pub fn has(name: &str) -> bool {
    find(name).is_ok()
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
        let library = preload.join("platforms").join(ARCH).join(name);
        library.is_file().then_some(preload)
    });
    let found = found.ok_or_else(|| {
        let first = shown(&directories[0]);
        Problem::Failed(format!(
            "the preload library {name} is missing: `cargo install` does not install it. Run `make build` and `make install` in a checkout, or set {DIRECTORY} to the directory that has preload/platforms/{ARCH}/{name}; it is not in {first}",
        ))
    })?;
    add_links(&found).map_err(|e| {
        let found = shown(&found);
        let remedy = "run `nowait run -- true` once as the owner of the directory";
        Problem::Failed(format!("cannot add links to {found}: {e}; {remedy}"))
    })?;
    let found = found.join("libasan.so/$PLATFORM").join(name);
    // ld.so(8) splits the list at colons and spaces, and has no way to quote them.
    match found
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .any(|byte| b": ".contains(byte))
    {
        true => Err(Problem::Failed(format!(
            "{} cannot be preloaded: its path has a space or a colon",
            shown(&found)
        ))),
        false => Ok(found),
    }
}

/// Adds the links that `scripts/preload-directory.sh` makes and that a Python wheel cannot have.
fn add_links(preload: &Path) -> io::Result<()> {
    let last = preload.join("libasan.so");
    if last.is_symlink() {
        return Ok(());
    }
    let platforms = preload.join("platforms");
    let native = ["haswell", "xeon_phi"].map(|name| (name, "x86_64"));
    let small = ["i386", "i486", "i586", "i686"].map(|name| (name, "lib32"));
    let links = native.iter().chain(&small);
    let links = links.filter(|(_, target)| platforms.join(target).is_dir());
    let links = links.map(|(name, target)| (platforms.join(name), *target));
    for (link, target) in links.chain([(last, "platforms")]) {
        match symlink(target, link) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    Ok(())
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

    #[test]
    fn a_directory_without_links_is_completed() {
        let directory = tempfile::tempdir().unwrap();
        let preload = directory.path();
        for kind in ["x86_64", "lib32"] {
            std::fs::create_dir_all(preload.join("platforms").join(kind)).unwrap();
        }
        std::fs::write(preload.join("platforms/x86_64/a.so"), "a").unwrap();
        for _ in 0..2 {
            add_links(preload).unwrap();
            for link in ["libasan.so/haswell/a.so", "libasan.so/x86_64/a.so"] {
                assert!(preload.join(link).is_file(), "{link}");
            }
            assert!(preload.join("libasan.so/i686").is_dir());
        }
        let native = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(native.path().join("platforms/aarch64")).unwrap();
        add_links(native.path()).unwrap();
        assert!(native.path().join("libasan.so/aarch64").is_dir());
        assert!(!native.path().join("platforms/haswell").exists());
    }
}
