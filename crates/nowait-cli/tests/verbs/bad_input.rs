//! Bad input of every verb that takes paths: the message and the exit code, and the rest of the work is done.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::program::{
    MIB, Said, as_nobody, cold, directory, fifo, nowait, open_directory, run, run_with,
};

/// A verb, and its behaviour where the verbs differ.
struct Verb {
    words: &'static [&'static str],
    /// It processes contents of regular files only. The others show files of every type.
    only_regular: bool,
}

const VERBS: [Verb; 5] = [
    Verb {
        words: &["fincore"],
        only_regular: true,
    },
    Verb {
        words: &["warm"],
        only_regular: true,
    },
    Verb {
        words: &["evict", "-v"],
        only_regular: true,
    },
    Verb {
        words: &["scan"],
        only_regular: false,
    },
    Verb {
        words: &["du"],
        only_regular: false,
    },
];

impl Verb {
    fn name(&self) -> &'static str {
        self.words[0]
    }

    fn on<S: AsRef<OsStr>>(&self, paths: impl IntoIterator<Item = S>) -> Command {
        let mut command = nowait(self.words);
        command.args(paths);
        command
    }

    /// Checks that the good file was processed.
    fn has_done(&self, said: &Said, good: &Path) {
        let shown = match self.name() {
            "warm" => "1 file,".to_owned(),
            "evict" => "in 1 file".to_owned(),
            _ => good.display().to_string(),
        };
        assert!(
            String::from_utf8_lossy(&said.out).contains(&shown),
            "{said:?}"
        );
    }
}

#[test]
fn a_missing_file_is_reported_and_the_rest_is_done() {
    let dir = directory();
    let (good, missing) = (dir.path().join("good"), dir.path().join("missing"));
    for verb in VERBS {
        cold(good.clone(), MIB);
        let said = run(&mut verb.on([&missing, &good])).in_part();
        let why = format!(
            "nowait: {}: No such file or directory (os error 2)\n",
            missing.display()
        );
        assert_eq!(said.err, why, "{}", verb.name());
        verb.has_done(&said, &good);
    }
}

#[test]
fn an_unreadable_directory_is_reported_and_the_rest_is_done() {
    let dir = open_directory();
    let (good, closed) = (dir.path().join("good"), dir.path().join("closed"));
    fs::write(&good, "x").unwrap();
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    for verb in VERBS {
        let paths = [closed.as_os_str(), good.as_os_str()];
        let words = verb.words.iter().map(OsStr::new).chain(paths);
        let (mut command, _copy) = as_nobody(words);
        let said = run(&mut command).in_part();
        let why = format!("nowait: {}: Permission denied", closed.display());
        assert!(said.err.starts_with(&why), "{}: {said:?}", verb.name());
        verb.has_done(&said, &good);
    }
}

#[test]
fn a_fifo_is_not_opened() {
    let dir = directory();
    let fifo = fifo(dir.path().join("fifo"));
    let good = dir.path().join("good");
    for verb in VERBS {
        cold(good.clone(), MIB);
        let said = run(&mut verb.on([&fifo, &good]));
        verb.has_done(&said, &good);
        if verb.only_regular {
            let why = format!(
                "nowait: {}: is a FIFO, not a regular file\n",
                fifo.display()
            );
            assert_eq!(said.in_part().err, why, "{}", verb.name());
        } else {
            verb.has_done(&said.done(), &fifo);
        }
    }
}

#[test]
fn a_list_with_wrong_names_is_processed_to_its_end() {
    let dir = directory();
    let good = dir.path().join("good");
    let mut list = b"missing\0\0".to_vec();
    list.extend([b'x'; 5000]);
    list.push(0);
    list.extend(good.as_os_str().as_encoded_bytes());
    for verb in VERBS {
        cold(good.clone(), MIB);
        // The last name may lack its NUL.
        for end in [&b""[..], b"\0"] {
            let input = [&list, end].concat();
            let said = run_with(&mut verb.on(["--files0-from=-"]), &input).in_part();
            let why = "\
nowait: missing: No such file or directory (os error 2)
nowait: -: name 2 is empty; it is skipped
nowait: -: name 3 is longer than any path; it is skipped
";
            assert_eq!(said.err, why, "{}", verb.name());
            verb.has_done(&said, &good);
        }
        let no_list = run(&mut verb.on(["--files0-from=missing"])).in_part();
        let why = "nowait: missing: cannot read the list: No such file or directory (os error 2)\n";
        assert_eq!(no_list.err, why, "{}", verb.name());
        let both = run(&mut verb.on(["--files0-from=-", "path"]));
        assert_eq!(both.code, Some(2), "{}", verb.name());
    }
}

#[test]
fn a_name_may_have_any_bytes() {
    let dir = directory();
    let path = dir
        .path()
        .join(OsString::from_vec(b"\xff\n\x1b[31m".to_vec()));
    for verb in VERBS {
        fs::write(&path, "x").unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        run(&mut verb.on([&path])).done();
        run(&mut verb.on([dir.path()])).done();
        fs::remove_file(&path).unwrap();
        // Messages do not send control characters to a terminal.
        let said = run(&mut verb.on([&path])).in_part();
        assert!(!said.err.contains('\x1b'), "{}: {said:?}", verb.name());
    }
}

#[test]
fn a_full_disk_is_reported() {
    let dir = directory();
    let good = cold(dir.path().join("good"), MIB);
    for verb in VERBS {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = verb.on([&good]).stdout(full).output().unwrap();
        let why =
            "nowait: cannot write to standard output: No space left on device (os error 28)\n";
        let said = Said::of(&output).in_part();
        assert_eq!(said.err, why, "{}", verb.name());
    }
}

#[test]
fn a_closed_pipe_ends_a_verb_quietly() {
    let dir = directory();
    for i in 0..2000 {
        fs::write(dir.path().join(format!("file-{i}")), "x").unwrap();
    }
    for verb in VERBS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = verb.on([dir.path()]);
        let output = command
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        Said::of(&output).done();
    }
}

#[test]
fn wrong_options_are_refused_with_a_tip() {
    for verb in VERBS {
        for (option, tip) in [("--jsno", "'--json'"), ("--no-such-option", "Usage:")] {
            let said = run(&mut verb.on([option]));
            assert_eq!(said.code, Some(2), "{}: {said:?}", verb.name());
            assert!(said.err.contains(tip), "{}: {said:?}", verb.name());
            assert!(said.out.is_empty(), "{}: {said:?}", verb.name());
        }
    }
}
