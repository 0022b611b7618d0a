//! The Rust blocks of the book in `docs/book/`, compiled and run as documentation tests.

macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        $(#[cfg(doctest)]
        #[doc = include_str!(concat!("../docs/book/", $path))]
        mod $name {})*
    };
}

pages! {
    read: "read.md",
    modes: "modes.md",
    tokio: "tokio.md",
    serve_dir: "serve-dir.md",
    object_store: "object-store.md",
    mapping: "mapping.md",
    directories: "directories.md",
}
