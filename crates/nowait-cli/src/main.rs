//! The program `nowait`.

fn main() -> std::process::ExitCode {
    nowait_cli::main()
}
