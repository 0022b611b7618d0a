//! Tests of the behaviour that all verbs share on a terminal.

use crate::program::{directory, nowait, on_a_terminal};

/// See no-color.org.
#[test]
fn colours_are_turned_off_by_a_variable_that_is_not_empty() {
    let dir = directory();
    std::fs::create_dir(dir.path().join("directory")).unwrap();
    for verb in ["--help", "doctor"] {
        for (value, coloured) in [(None, true), (Some(""), true), (Some("1"), false)] {
            let mut command = nowait([verb]);
            command
                .current_dir(dir.path())
                .env("TERM", "xterm")
                .env_remove("LS_COLORS");
            match value {
                Some(value) => command.env("NO_COLOR", value),
                None => command.env_remove("NO_COLOR"),
            };
            let said = on_a_terminal(&mut command);
            assert_eq!(
                said.contains("\x1b["),
                coloured,
                "{verb}, {value:?}: {said}"
            );
        }
    }
}

#[test]
fn doctor_fits_a_narrow_terminal() {
    let dir = directory();
    let mut command = nowait(["doctor", "."]);
    let said = on_a_terminal(command.current_dir(dir.path()).env("NO_COLOR", "1"));
    for line in said.lines() {
        // A word may be longer than its column.
        let words = line.split_whitespace().count();
        assert!(line.chars().count() <= 40 || words == 1, "{line}");
    }
}
