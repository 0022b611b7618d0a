//! Compiles the loop with liburing, with the feature `liburing`.

fn main() {
    println!("cargo::rerun-if-changed=src/areas/ring/liburing.c");
    #[cfg(feature = "liburing")]
    {
        cc::Build::new()
            .file("src/areas/ring/liburing.c")
            .opt_level(3)
            .warnings(true)
            .compile("loop");
        println!("cargo::rustc-link-lib=uring");
    }
}
