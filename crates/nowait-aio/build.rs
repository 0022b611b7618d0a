//! How the shared library is linked.

fn main() {
    for option in [
        // Programs that are linked with it find it by this name.
        "-Wl,-soname,libnowait_aio.so",
        // Its threads run in its code: dlclose(3) must not take that away.
        "-Wl,-z,nodelete",
        // aio_error(3) and its kin run in signal handlers: nothing is left to be resolved there.
        "-Wl,-z,now",
    ] {
        println!("cargo::rustc-cdylib-link-arg={option}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
