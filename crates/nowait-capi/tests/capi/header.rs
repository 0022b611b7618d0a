//! The header: that it is the one of the sources, and that compilers take it.

use std::path::Path;
use std::process::Command;

use crate::installed::{run, scratch};

/// With `NOWAIT_WRITE_HEADER=1` the header is written instead of compared.
#[test]
fn the_header_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new()
        .with_crate(root)
        .with_config(config);
    let mut made = Vec::new();
    bindings.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = root.join("include/nowait.h");
    if std::env::var_os("NOWAIT_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "include/nowait.h is not made from these sources: NOWAIT_WRITE_HEADER=1 cargo test -p nowait-capi header"
    );
}

#[test]
fn compilers_take_the_header_without_a_warning() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let scratch = scratch();
    let source = |name: &str| {
        let path = scratch.path().join(name);
        let text = "#include <nowait.h>\n#include <nowait.h>\nint main(void) { return 0; }\n";
        std::fs::write(&path, text).unwrap();
        path
    };
    let (c, cpp) = (source("header.c"), source("header.cpp"));
    for (compiler, standard, file) in [
        ("gcc", "c99", &c),
        ("gcc", "c17", &c),
        ("clang", "c99", &c),
        ("g++", "c++17", &cpp),
        ("clang++", "c++17", &cpp),
    ] {
        run(Command::new(compiler)
            .arg(format!("-std={standard}"))
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", "-o"])
            .arg(scratch.path().join("header.o"))
            .arg(file)
            .arg("-I")
            .arg(&include));
    }
}
