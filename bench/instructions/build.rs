//! Exports `clock_gettime` of the program, so that a preloaded library calls it too.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=clock_gettime");
}
