//! How the shared library is linked.

fn main() {
    for option in [
        // Programs that are linked with the library load it by this name.
        "-Wl,-soname,libnowait_aio.so.0",
        // dlclose(3) must not unmap the library while its threads run.
        "-Wl,-z,nodelete",
        // aio_error(3) and others run in signal handlers, where the dynamic linker must not resolve symbols.
        "-Wl,-z,now",
    ] {
        println!("cargo::rustc-cdylib-link-arg={option}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
