//! A process that sends events, and the directories that it names in them.
//!
//! A program may write any event into the channel. So a process is found by its number, and nothing
//! is opened for it that it could not open itself. An event may name another process than the one
//! that has written it.

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::LazyLock;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, StatxFlags, fstat, open, openat, openat2, statx,
};

use crate::directory::FLAGS;

/// A process that has the rights and the root directory of this one.
pub struct Process {
    /// Its directory in /proc. The descriptor names this process also after its end.
    directory: OwnedFd,
}

/// A process has other rights than this one.
pub struct OtherRights;

/// The rights and the root directory of a process.
#[derive(Debug)]
struct Rights {
    /// The lines of /proc/PID/status that begin with a name of [`LINES`].
    lines: Vec<String>,
    has_no_new_privs: bool,
    /// The user namespace, if the kernel has them. The same capabilities allow less in another one.
    users: Option<Inode>,
    /// The root directory.
    root: Inode,
}

/// The mount, the device and the number of an inode. A mount belongs to one mount namespace.
type Inode = (u64, (u32, u32), u64);

/// A line that decides that, too: an unprivileged process may open less with Landlock rules, which need
/// no_new_privs.
const NO_NEW_PRIVS: &str = "NoNewPrivs:\t";
/// The lines of /proc/PID/status that decide what a process may open. A process may open less with
/// a seccomp filter.
const LINES: [&str; 6] = [
    "Uid:",
    "Gid:",
    "Groups:",
    "CapEff:",
    "Seccomp:",
    "Seccomp_filters:",
];

impl Process {
    /// `None` if it has ended, or has other rights or another root directory.
    pub fn of(pid: u32) -> Option<Process> {
        let process = Process::find(pid)?.ok()?;
        let is_new = |process| Some(Rights::of(process)?.has_no_new_privs);
        let own = directory("self")?;
        (is_new(process.directory.as_fd())? == is_new(own.as_fd())?).then_some(process)
    }

    /// A process that may not get new privileges (prctl(2)) counts as one with the same rights. It may open less: only
    /// the pages of files are evicted for it. `None` if it has ended. An error if it has other rights or another root
    /// directory.
    pub fn find(pid: u32) -> Option<Result<Process, OtherRights>> {
        static OURS: LazyLock<Option<Rights>> =
            LazyLock::new(|| Rights::of(directory("self")?.as_fd()));
        let directory = directory(&pid.to_string())?;
        let (its, ours) = (Rights::of(directory.as_fd())?, OURS.as_ref()?);
        Some(match its.are_those_of(ours) {
            true => Ok(Process { directory }),
            false => Err(OtherRights),
        })
    }

    /// Opens the directory `path` as the process does, relative to its descriptor `fd`, or to its
    /// working directory if that is negative.
    pub fn open(&self, fd: i32, path: &[u8]) -> Option<OwnedFd> {
        self.resolve(fd, path, FLAGS)
    }

    /// The metadata of a file that is named in the same way. Nothing is opened.
    pub fn stat(&self, fd: i32, path: &[u8]) -> Option<Stat> {
        fstat(self.hold(fd, path)?).ok()
    }

    /// A descriptor of O_PATH for a file that is named in the same way.
    pub fn hold(&self, fd: i32, path: &[u8]) -> Option<OwnedFd> {
        self.resolve(fd, path, OFlags::PATH | OFlags::CLOEXEC)
    }

    fn resolve(&self, fd: i32, path: &[u8], flags: OFlags) -> Option<OwnedFd> {
        let start = match fd {
            0.. => format!("fd/{fd}"),
            _ => "cwd".to_owned(),
        };
        let none = Mode::empty();
        let path = Path::new(OsStr::from_bytes(path));
        if path.as_os_str().is_empty() {
            return openat(&self.directory, start, flags, none).ok();
        }
        // The links in /proc/PID lead out of namespaces.
        let below = |start: BorrowedFd<'_>| {
            openat2(start, path, flags, none, ResolveFlags::NO_MAGICLINKS).ok()
        };
        if path.is_absolute() {
            return below(CWD);
        }
        let start = openat(&self.directory, start, FLAGS | OFlags::PATH, none).ok()?;
        below(start.as_fd())
    }
}

fn directory(name: &str) -> Option<OwnedFd> {
    open(
        Path::new("/proc").join(name),
        FLAGS | OFlags::PATH,
        Mode::empty(),
    )
    .ok()
}

impl Rights {
    /// Returns true if these are the same rights, except those that new programs may bring.
    fn are_those_of(&self, other: &Rights) -> bool {
        self.lines == other.lines && self.users == other.users && self.root == other.root
    }

    fn of(process: BorrowedFd<'_>) -> Option<Rights> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat(process, "status", flags, Mode::empty()).ok()?;
        let mut status = Vec::new();
        std::fs::File::from(file).read_to_end(&mut status).ok()?;
        let status = String::from_utf8_lossy(&status);
        let is_right = |line: &&str| LINES.iter().any(|name| line.starts_with(name));
        let inode = |name| {
            let mask = StatxFlags::INO | StatxFlags::MNT_ID;
            let stat = statx(process, name, AtFlags::empty(), mask).ok()?;
            let device = (stat.stx_dev_major, stat.stx_dev_minor);
            Some((stat.stx_mnt_id, device, stat.stx_ino))
        };
        Some(Rights {
            has_no_new_privs: status
                .lines()
                .any(|line| line.strip_prefix(NO_NEW_PRIVS) == Some("1")),
            lines: status.lines().filter(is_right).map(str::to_owned).collect(),
            users: inode("ns/user"),
            root: inode("root")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::process::Command;

    fn inode(fd: &OwnedFd) -> u64 {
        rustix::fs::fstat(fd).unwrap().st_ino
    }

    #[test]
    fn directories_are_opened_as_the_process_does() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("d")).unwrap();
        symlink(root.path().join("d"), root.path().join("link")).unwrap();
        let expected = fs::metadata(root.path().join("d")).unwrap().ino();
        let directory = File::open(root.path()).unwrap();
        let process = Process::of(std::process::id()).unwrap();
        let whole = root.path().join("d");
        for path in [&b"d"[..], b"link", b"d/../d", whole.as_os_str().as_bytes()] {
            let opened = process.open(directory.as_raw_fd(), path).unwrap();
            assert_eq!(inode(&opened), expected);
        }
        assert!(process.open(directory.as_raw_fd(), b"").is_some());
        assert!(process.open(-1, b".").is_some());
    }

    #[test]
    fn neither_fifos_nor_the_links_of_processes_are_opened() {
        let root = tempfile::tempdir().unwrap();
        let fifo = root.path().join("fifo");
        let (kind, mode) = (rustix::fs::FileType::Fifo, Mode::RWXU);
        rustix::fs::mknodat(CWD, &fifo, kind, mode, 0).unwrap();
        let directory = File::open(root.path()).unwrap();
        let process = Process::of(std::process::id()).unwrap();
        let open = |fd, path: &[u8]| process.open(fd, path).is_some();
        assert!(!open(directory.as_raw_fd(), b"fifo"));
        assert!(!open(-1, b"/dev/null"));
        assert!(!open(-1, b"/proc/1/root"));
        assert!(!open(-1, b"/proc/self/cwd/"));
        let number = format!("/proc/self/fd/{}", directory.as_raw_fd());
        assert!(!open(-1, number.as_bytes()));
        assert!(!open(-1, b"/nowhere"));
        assert!(!open(i32::MAX, b""));
    }

    #[test]
    fn a_process_with_other_rights_or_another_root_is_not_followed() {
        assert!(Process::of(0).is_none());
        assert!(Process::of(u32::MAX).is_none());
        if !rustix::process::geteuid().is_root() {
            return slowdisk::skip_or_fail("needs root");
        }
        // A new user namespace comes with all capabilities. This process may lack some.
        let ours = Rights::of(directory("self").unwrap().as_fd()).unwrap();
        let effective = ours.lines.iter().find_map(|it| it.strip_prefix("CapEff:"));
        let effective = u64::from_str_radix(effective.unwrap().trim(), 16).unwrap();
        let last = fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap();
        let missing = (0..=last.trim().parse().unwrap()).filter(|at| effective & 1 << at == 0);
        let missing: Vec<String> = missing.map(|at: u32| format!("-cap_{at}")).collect();
        let missing = match missing.is_empty() {
            true => "+all".to_owned(),
            false => missing.join(","),
        };
        let missing = format!("--bounding-set={missing}");
        // The last one is as this process.
        for (words, is_followed) in [
            (&["setpriv", "--reuid=65534", "--clear-groups"][..], false),
            (
                &["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"],
                false,
            ),
            (&["setpriv", "--no-new-privs"], false),
            (&["unshare", "--mount"], false),
            (
                &["unshare", "--user", "--map-root-user", "setpriv", &missing],
                false,
            ),
            (&["env"], true),
        ] {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).args(["sleep", "600"]);
            let mut child = command.spawn().unwrap();
            let name = format!("/proc/{}/comm", child.id());
            while fs::read_to_string(&name).unwrap() != "sleep\n" {
                std::thread::yield_now();
            }
            let found = Process::of(child.id());
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(found.is_some(), is_followed, "{words:?}");
        }
    }
}
