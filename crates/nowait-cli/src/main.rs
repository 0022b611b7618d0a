//! The program `nowait`.

use std::io::Write;

fn main() -> std::process::ExitCode {
    // The hook of the standard library takes a lock, and then memory. If a thread that has just
    // begun finds no memory (RLIMIT_AS), it waits for itself. This one prints without either, and
    // the process ends.
    std::panic::set_hook(Box::new(|panic| {
        let _ = writeln!(std::io::stderr(), "nowait: {panic}");
    }));
    nowait_cli::main()
}
