//! Tests with files that are replaced after they were listed or saved in a snapshot. The program never opens
//! a file that is not regular, and follows no link that has replaced a directory.
#![allow(unsafe_code, reason = "seccomp(2) in a child")]

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::program::{
    MIB, Said, cached_bytes, cold, directory, evict, fifo, limited, nowait, run, touch, wait_until,
    word,
};
use rustix::event::{PollFd, PollFlags, poll};
use slowdisk::{FileType, ServedDirectory, ServedEntry};

/// A snapshot of all pages of these files in their current state.
fn snapshot_of(at: &Path, files: &[&Path]) {
    let mut text = "{\"format\":\"nowait cache\",\"version\":1}\n".to_owned();
    for file in files {
        let meta = fs::metadata(file).unwrap();
        let (size, seconds, nanoseconds) = (meta.size(), meta.mtime(), meta.mtime_nsec());
        text += &format!(
            "{{\"path\":{file:?},\"size\":{size},\"mtime\":[{seconds},{nanoseconds}],\
             \"inode\":{},\"ranges\":[]}}\n",
            meta.ino()
        );
    }
    text += &format!("{{\"end\":{{\"files\":{}}}}}\n", files.len());
    fs::write(at, text).unwrap();
}

/// A process that writes into a FIFO as soon as it is opened for reading.
struct Writer(Child);

impl Writer {
    fn of(fifo: &Path) -> Writer {
        let child = Command::new("sh")
            .args(["-c", "echo told > \"$0\""])
            .arg(fifo)
            .spawn()
            .unwrap();
        let stat = format!("/proc/{}/wchan", child.id());
        wait_until("the writer waits for a reader", || {
            fs::read_to_string(&stat).is_ok_and(|at| at.contains("wait_for_partner"))
        });
        Writer(child)
    }

    /// Checks that the writer still waits, and lets it end.
    fn waits_still(mut self, fifo: &Path, said: &Said) {
        // If it was woken, it ends in a moment.
        std::thread::sleep(Duration::from_millis(300));
        if let Some(status) = self.0.try_wait().unwrap() {
            panic!("woken: {status}; {said:?}");
        }
        let mut text = String::new();
        let mut reader = File::open(fifo).unwrap();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "told\n");
        assert!(self.0.wait().unwrap().success());
    }
}

#[test]
fn a_fifo_in_a_snapshot_is_not_opened() {
    let dir = directory();
    let fifo = fifo(dir.path().join("fifo"));
    let snapshot = dir.path().join("snapshot");
    snapshot_of(&snapshot, &[&fifo]);
    for backend in [None, Some("threads")] {
        let writer = Writer::of(&fifo);
        let mut command = nowait(["cache", "restore", word(&snapshot)]);
        let said = run(command.envs(backend.map(|name| ("NOWAIT_BACKEND", name))));
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains("not a regular file"), "{said:?}");
        writer.waits_still(&fifo, &said);
    }
}

#[test]
fn a_device_in_a_snapshot_is_not_opened() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let dir = directory();
    let snapshot = dir.path().join("snapshot");
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = Path::new(name.to_str().unwrap());
    snapshot_of(&snapshot, &[slave]);
    let said = run(&mut nowait(["cache", "restore", word(&snapshot)]));
    assert_eq!(said.code, Some(1), "{said:?}");
    // A terminal is hung up after its other end was opened and closed.
    let hung_up = |timeout| {
        let mut fds = [PollFd::new(&master, PollFlags::IN)];
        poll(&mut fds, timeout).unwrap();
        fds[0].revents().contains(PollFlags::HUP)
    };
    let at_once = rustix::event::Timespec::default();
    assert!(!hung_up(Some(&at_once)), "{said:?}");
    drop(File::open(slave).unwrap());
    // A child that another test forks meanwhile has the terminal open until it calls execve(2), so this waits.
    assert!(hung_up(None), "this test sees whether it was opened");
}

#[test]
fn a_fifo_that_is_listed_as_a_regular_file_is_not_opened() {
    slowdisk::require!(slowdisk::available());
    let out = directory();
    let snapshot = out.path().join("snapshot");
    for verb in [
        &["fincore", "-r"][..],
        &["evict", "-r"],
        &["warm", "-r"],
        &["cache", "save", "-o", word(&snapshot), "-r"],
    ] {
        let at = ServedDirectory::new(vec![ServedEntry {
            name: "file".into(),
            listed: (2, FileType::RegularFile),
            next: 1,
            actual: (2, FileType::NamedPipe),
        }])
        .unwrap();
        let fifo = at.path().join("file");
        let writer = Writer::of(&fifo);
        let said = run(nowait(verb).arg(at.path()));
        let told = format!("{}: ", word(&fifo));
        assert!(said.err.contains(&told), "{verb:?}: {said:?}");
        writer.waits_still(&fifo, &said);
    }
}

/// Makes openat2(2) fail with ENOSYS in the program.
fn without_openat2(command: &mut Command) -> &mut Command {
    let statement = |code: u32, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let program = [
        // The number of the call.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            libc::SYS_openat2 as u32,
        ),
        statement(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
        ),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = move || {
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_ptr().cast_mut(),
        };
        // SAFETY: both are mere calls, with memory that outlives them.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter)
        };
        match done {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(filter) }
}

#[test]
fn warm_does_not_follow_a_link_that_has_replaced_a_directory() {
    for sandboxed in [false, true] {
        let dir = directory();
        let (tree, elsewhere) = (dir.path().join("tree"), dir.path().join("elsewhere"));
        for at in [&tree.join("a/b"), &elsewhere.join("b")] {
            fs::create_dir_all(at).unwrap();
        }
        // With a depth of 1, files are read one by one in the order of their inodes.
        let mut made = ["x", "y"].map(|name| tree.join(name));
        for path in &made {
            fs::write(path, "").unwrap();
        }
        made.sort_by_key(|path| fs::metadata(path).unwrap().ino());
        fs::rename(&made[0], tree.join("first")).unwrap();
        fs::rename(&made[1], tree.join("a/b/file")).unwrap();
        let first = cold(tree.join("first"), 4 * MIB);
        cold(tree.join("a/b/file"), 5000);
        let outside = cold(elsewhere.join("b/file"), 5000);
        let mut command = nowait(["warm", "--depth", "1", "--rate", "1M", "-r", word(&tree)]);
        if sandboxed {
            without_openat2(&mut command);
        }
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until("a page is cached", || cached_bytes(&first) > 0);
        fs::rename(tree.join("a"), tree.join("aside")).unwrap();
        symlink(&elsewhere, tree.join("a")).unwrap();
        let said = Said::of(&child.wait_with_output().unwrap());
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.err.contains("file: vanished"), "{said:?}");
        assert_eq!(cached_bytes(&first), 4 * MIB, "{said:?}");
        assert_eq!(cached_bytes(&outside), 0, "{said:?}");
    }
}

#[test]
fn without_openat2_every_file_of_a_tree_is_found() {
    let dir = directory();
    let below = dir.path().join("a/b/c");
    fs::create_dir_all(&below).unwrap();
    let files = [
        cold(below.join("one"), 5000),
        cold(dir.path().join("two"), 5000),
    ];
    for _ in 0..2 {
        let mut command = nowait(["warm", "-r", word(dir.path())]);
        run(without_openat2(&mut command)).done();
        for file in &files {
            assert_eq!(cached_bytes(file), 5000);
        }
        let mut command = nowait(["evict", "-r", word(dir.path())]);
        run(without_openat2(&mut command)).done();
        for file in &files {
            assert_eq!(cached_bytes(file), 0);
        }
    }
}

#[test]
fn without_proc_files_are_found() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 5000);
    touch(&file, 0..5000);
    let script = "mount -t tmpfs none /proc && exec \"$0\" fincore --json -r \"$1\"";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_nowait")])
        .arg(dir.path());
    let said = run(&mut command);
    let report = said.done().json();
    assert_eq!(report["total"]["res"], 8192, "{report}");
    evict(&file);
}

#[test]
fn many_trees_need_few_descriptors() {
    let dir = directory();
    for at in 0..200 {
        let tree = dir.path().join(format!("d{at}"));
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("file"), "x").unwrap();
    }
    let trees: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    let mut command = nowait(["warm", "--json", "-r"]);
    command.args(trees.into_iter().map(|tree| tree.unwrap().path()));
    let said = run(limited(&mut command, 100)).done();
    assert_eq!(said.json()["files"], 200);
}
