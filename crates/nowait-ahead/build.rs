//! Links libgcc_eh.a, which unwinds the stack after a panic. The compiler links libgcc_s.so.1 for
//! that otherwise, which ld.so(8) then loads at each start. libnowait_ahead.so is loaded into every
//! process of a program.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is_native = env::var("TARGET").ok() == env::var("HOST").ok();
    let is_gnu = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    if !is_native || !is_gnu {
        return;
    }
    let (Some([unwinder, helpers]), Ok(directory)) = (archives(), env::var("OUT_DIR")) else {
        return;
    };
    println!("cargo:rerun-if-changed={unwinder}");
    // The linker finds this script before the library.
    let script = Path::new(&directory).join("libgcc_s.so");
    if fs::write(script, format!("GROUP(\"{unwinder}\" \"{helpers}\")\n")).is_ok() {
        println!("cargo:rustc-link-search=native={directory}");
    }
}

/// The paths of libgcc_eh.a and libgcc.a. `None` for a compiler without them: then libgcc_s.so.1 is
/// linked.
fn archives() -> Option<[String; 2]> {
    let output = Command::new("cc")
        .arg("-print-libgcc-file-name")
        .output()
        .ok()?;
    let helpers = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    let unwinder = Path::new(&helpers).with_file_name("libgcc_eh.a");
    if !unwinder.is_file() {
        return None;
    }
    Some([unwinder.to_str()?.to_owned(), helpers])
}
