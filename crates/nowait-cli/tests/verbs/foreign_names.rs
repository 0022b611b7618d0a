//! Tests of names that others have chosen: no verb prints their control sequences.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use crate::program::{cold, directory, nowait, on_a_terminal, run, word};

/// A name that clears the screen, forges a line, changes the direction of the text, and ends a string
/// of the terminal.
const NAME: &str = "a\x1b[2Jb\nnowait: c\u{9b}31m\u{202e}d\x07";

/// Asserts that a text has no control characters besides newlines and tabs.
fn assert_plain(words: &[&str], text: &str) {
    let is_wrong = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || c == '\u{202e}';
    assert!(!text.contains(is_wrong), "{words:?}: {text:?}");
    assert!(!text.contains("\nnowait: c"), "{words:?}: {text:?}");
}

/// Runs the program, and asserts that its messages are plain. Returns its exit code.
fn messages(words: &[&str]) -> i32 {
    let mut command = nowait(words);
    let said = run(command.env("XDG_CACHE_HOME", "/nonexistent"));
    assert_plain(words, &said.err);
    said.code.unwrap()
}

#[test]
fn no_message_has_control_sequences_of_a_name() {
    let dir = directory();
    let missing = dir.path().join(NAME);
    let missing = word(&missing);
    let below = format!("{missing}/x");
    for words in [
        &["fincore", missing][..],
        &["evict", missing],
        &["warm", missing],
        &["warm", "--metadata", missing],
        &["keep", missing],
        &["keep", "--paths", missing],
        &["keep", "--prometheus", &below, missing],
        &["cache", "save", "-o", &below, "."],
        &["cache", "restore", missing],
        &["scan", missing],
        &["scan", "-r", missing],
        &["du", missing],
        &["du", "--files0-from", missing],
        &["doctor", missing],
        &["demo", missing],
        &["run", missing],
        &["run", "--walk", missing, "true"],
        &["learn", "show", NAME],
        &["learn", "remove", NAME],
        &[NAME],
        &[&format!("--{NAME}")],
        &["warm", &format!("--rate={NAME}"), "."],
        &["fincore", &format!("--{NAME}"), "."],
        &["evict", &format!("-{NAME}")],
        &["help", NAME],
    ] {
        assert_ne!(messages(words), 0, "{words:?}");
    }
    // A program that is not watched, and one that cannot be run.
    let script = dir.path().join(NAME);
    fs::write(&script, "#!/nonexistent\n").unwrap();
    messages(&["run", missing]);
    fs::copy("/bin/true", &script).unwrap();
    let libraries = crate::program::libraries();
    let mut command = nowait(["run", "--stats", "--", missing]);
    let said = run(command.env("NOWAIT_LIBRARY_DIR", libraries));
    assert_plain(&["run"], &said.err);
}

#[test]
fn tables_on_a_terminal_have_no_control_sequences_of_a_name() {
    let dir = directory();
    let tree = dir.path().join(NAME);
    fs::create_dir(&tree).unwrap();
    let file = cold(tree.join(NAME), 100_000);
    drop(fs::read(&file).unwrap());
    let (tree, file) = (word(&tree), word(&file));
    for words in [
        &["fincore", tree][..],
        &["fincore", "--map", file],
        &["evict", "-v", tree],
        &["warm", tree],
        &["scan", tree],
        &["scan", "-r", tree],
        &["du", "-a", tree],
        &["doctor", tree],
        &["doctor", file],
    ] {
        let mut command = nowait(words);
        let shown = on_a_terminal(command.env("NO_COLOR", "1"));
        assert_plain(words, &shown);
    }
}

#[test]
fn a_process_of_such_a_name_is_shown_plainly() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 100_000);
    let script = "import mmap, os, sys\nopen('/proc/self/comm', 'w').write(sys.argv[2])\n\
                  kept = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 0, prot=mmap.PROT_READ)\n\
                  kept[0]\nprint('mapped', flush=True)\nsys.stdin.read()";
    let mut process = Command::new("python3")
        .args(["-c", script, word(&file), "a\x1b[2Jb\u{9b}c"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 7];
    std::io::Read::read_exact(process.stdout.as_mut().unwrap(), &mut line).unwrap();
    let words = ["evict", word(&file)];
    let said = run(&mut nowait(words));
    drop(process.stdin.take());
    process.wait().unwrap();
    assert!(said.text().contains("mapped by"), "{said:?}");
    assert_plain(&words, said.text());
}

#[test]
fn help_and_the_version_are_not_lost_without_a_word() {
    for words in [
        &["-h"][..],
        &["--help"],
        &["--version"],
        &["help"],
        &["help", "du"],
        &["du", "--help"],
        &["cache", "save", "-h"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let child = nowait(words)
            .stdout(full)
            .stderr(std::process::Stdio::piped())
            .spawn();
        let output = child.unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let line =
            "nowait: cannot write to standard output: No space left on device (os error 28)\n";
        assert_eq!(said, line, "{words:?}");
        // A reader that has closed the pipe is no failure.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = nowait(words)
            .stdout(writer)
            .stderr(std::process::Stdio::piped())
            .spawn();
        let output = output.unwrap().wait_with_output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{words:?}"
        );
        assert_eq!(run(&mut nowait(words)).code, Some(0));
    }
    let dir = directory();
    let file = cold(dir.path().join("file"), 1);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let saved = dir.path().join("saved");
    let words = ["cache", "save", "-o", word(&saved), word(&file)];
    let status = nowait(words)
        .stdout(full)
        .stderr(std::process::Stdio::null())
        .status();
    assert_eq!(status.unwrap().code(), Some(1));
    assert!(Path::new(&saved).exists());
}
