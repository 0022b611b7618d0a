//! The program `nowait`.
fn main() {}
