//! Runs the commands of the book in `docs/book/`. Numbers may differ from those that are printed there.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use crate::program::{directory, run};

/// The directory `data` of the book.
fn data(at: &Path) {
    fs::create_dir(at.join("data")).unwrap();
    for (name, size) in [("db", 2 << 20), ("log", 1 << 20), ("small", 3000)] {
        let path = at.join("data").join(name);
        fs::write(&path, vec![b'x'; size]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
    }
}

/// The text without digits and their units, and with one blank for several.
fn shape(text: &str) -> String {
    let words = text.split_whitespace().map(|word| {
        let is_number = word.starts_with(|c: char| c.is_ascii_digit() || c == '(');
        if is_number {
            "N".to_owned()
        } else {
            word.replace(|c: char| c.is_ascii_digit(), "N")
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The commands of a page, each with the output that follows it.
fn commands(page: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match (line.strip_prefix("```"), line.strip_prefix("$ ")) {
            (Some(kind), _) => inside = kind == "console",
            (_, Some(command)) if inside => found.push((command.into(), String::new())),
            (_, None) if inside => {
                let (_, output) = found.last_mut().expect("a command first");
                output.push_str(line);
                output.push('\n');
            }
            _ => {}
        }
    }
    found
}

#[test]
fn commands_print_what_the_book_shows() {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book");
    let bin = Path::new(env!("CARGO_BIN_EXE_nowait")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut count = 0;
    for page in fs::read_dir(book).unwrap() {
        let page = page.unwrap().path();
        let dir = directory();
        data(dir.path());
        for (command, output) in commands(&fs::read_to_string(&page).unwrap()) {
            let mut shell = Command::new("bash");
            shell.args(["-c", &command]).current_dir(dir.path());
            let said = run(shell.env("PATH", &path).env("LC_ALL", "C.UTF-8")).done();
            let (ours, shown) = (shape(said.text()), shape(&output));
            assert_eq!(ours, shown, "{command} in {}", page.display());
            count += 1;
        }
    }
    assert!(count >= 10, "{count} commands");
}

/// Commands that need more than a directory (`sh` blocks) are checked for options that do not exist.
#[test]
fn other_commands_have_options_that_exist() {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book");
    for page in fs::read_dir(book).unwrap() {
        let page = page.unwrap().path();
        let text = fs::read_to_string(&page).unwrap();
        let blocks = text.split("```sh\n").skip(1);
        let lines = blocks.flat_map(|block| block.lines().take_while(|line| *line != "```"));
        let lines = lines.filter_map(|line| line.strip_prefix("nowait "));
        for line in lines {
            // Behind `--` are the options of another program.
            let end = |word: &str| word == "|" || word == "--";
            let mut words = line.split_whitespace().take_while(|word| !end(word));
            let verb = words.next().unwrap();
            let help = run(&mut crate::program::nowait([verb, "--help"])).done();
            for option in words.filter(|word| word.starts_with('-')) {
                let option = option.split('=').next().unwrap_or(option);
                assert!(help.text().contains(option), "{line} in {}", page.display());
            }
        }
    }
}
