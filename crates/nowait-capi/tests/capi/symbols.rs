//! The symbols of the library.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::installed::{Installed, run};

pub fn header() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include/nowait.h")
}

/// The functions of the header that the library exports.
pub fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(header()).unwrap();
    let is_declaration =
        |line: &&str| line.starts_with(char::is_lowercase) && !line.starts_with("static");
    let names = header.lines().filter(is_declaration).filter_map(|line| {
        let name = line.split_once('(')?.0.rsplit([' ', '*']).next()?;
        name.starts_with("nw_").then(|| name.to_owned())
    });
    names.collect()
}

#[test]
fn the_shared_library_has_the_functions_of_the_header_and_nothing_else() {
    let library = Installed::tree().lib().join("libnowait.so");
    let listed = run(Command::new("readelf")
        .args(["--dyn-syms", "--wide"])
        .arg(&library));
    let symbols = listed.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let defined = fields
            .get(6)
            .is_some_and(|index| index.parse::<u32>().is_ok());
        let binding = fields.get(4).is_some_and(|binding| *binding != "LOCAL");
        (defined && binding).then(|| fields[7].to_owned())
    });
    let symbols: BTreeSet<String> = symbols.collect();
    let versioned = declared()
        .into_iter()
        .map(|name| format!("{name}@@NOWAIT_0.1"));
    assert_eq!(symbols, versioned.collect());
}

#[test]
fn the_shared_library_is_found_by_its_soname() {
    let library = Installed::tree().lib().join("libnowait.so");
    let dynamic = run(Command::new("readelf")
        .args(["--dynamic", "--wide"])
        .arg(&library));
    assert!(dynamic.contains("soname: [libnowait.so.0]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}
