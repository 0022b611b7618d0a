//! Links the unwinder of panics from libgcc_eh.a. The compiler links libgcc_s.so.1 otherwise, which ld.so(8) then loads at each
//! start: 0.15 ms, and libnowait_ahead.so is loaded into every process of a program.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let is_gnu = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    let (true, Some(archive), Ok(directory)) = (is_gnu, archive(), env::var("OUT_DIR")) else {
        return;
    };
    // The linker finds this script in the place of the library.
    let script = Path::new(&directory).join("libgcc_s.so");
    if fs::write(script, format!("INPUT({archive})\n")).is_ok() {
        println!("cargo:rustc-link-search=native={directory}");
    }
}

/// The path of libgcc_eh.a. `None` if the linker has none: then libgcc_s.so.1 is linked.
fn archive() -> Option<String> {
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let output = Command::new(linker)
        .arg("-print-file-name=libgcc_eh.a")
        .output()
        .ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    Path::new(&path).is_absolute().then_some(path)
}
