//! The programs of tests/c, against the shared and the static library, on both backends, under valgrind and with the
//! address sanitizer.

use std::path::{Path, PathBuf};

use crate::installed::{Linking, Program, run_to_end};

const C11: [&str; 7] = [
    "cc",
    "-std=gnu11",
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-pthread",
];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(name)
}

/// Runs each case of a program, below `wrapper` if it is not empty.
fn each_case(program: &Program, wrapper: &[&str], backends: &[&str]) {
    let mut wrong = Vec::new();
    for case in program.cases() {
        for backend in backends {
            let mut command = program.wrapped(wrapper);
            command.arg(&case);
            match *backend {
                // The library chooses the backend.
                "container" => command.env("NOWAIT_CONTAINER", "1"),
                backend => command.env("NOWAIT_BACKEND", backend),
            };
            if wrapper.first() == Some(&"valgrind") {
                command.env("NOWAIT_VALGRIND", "1");
            }
            if let Err(why) = run_to_end(&mut command) {
                wrong.push(format!("{case} on {backend}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const BACKENDS: [&str; 2] = ["uring", "threads"];

#[test]
fn calls_against_the_shared_library() {
    let program = Program::compile(&C11, &source("calls.c"), Linking::Shared);
    each_case(&program, &[], &BACKENDS);
}

#[test]
fn engines_against_the_shared_library() {
    let program = Program::compile(&C11, &source("engine.c"), Linking::Shared);
    each_case(&program, &[], &BACKENDS);
}

#[test]
fn both_against_the_static_library() {
    for name in ["calls.c", "engine.c"] {
        let program = Program::compile(&C11, &source(name), Linking::Static);
        each_case(&program, &[], &BACKENDS[..1]);
    }
}

/// Docker's default seccomp profile denies io_uring.
#[test]
fn both_as_in_a_container() {
    for name in ["calls.c", "engine.c"] {
        let program = Program::compile(&C11, &source(name), Linking::Shared);
        each_case(&program, &[], &["container"]);
    }
}

/// valgrind reports reads of memory that is not initialised or was freed, and memory to which no pointer is left.
#[test]
fn no_error_and_no_leak_under_valgrind() {
    for name in ["calls.c", "engine.c"] {
        let program = Program::compile(&C11, &source(name), Linking::Shared);
        let wrapper = [
            "valgrind",
            "--quiet",
            "--error-exitcode=99",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
            "--show-leak-kinds=definite",
        ];
        // valgrind has no io_uring of its own: it hands the memory of a ring to the kernel unchecked.
        each_case(&program, &wrapper, &["threads"]);
    }
}

#[test]
fn no_error_and_no_leak_with_the_address_sanitizer() {
    let compiler: Vec<&str> = C11
        .into_iter()
        .chain(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
        .collect();
    for name in ["calls.c", "engine.c"] {
        let program = Program::compile(&compiler, &source(name), Linking::Shared);
        each_case(&program, &[], &BACKENDS);
    }
}
