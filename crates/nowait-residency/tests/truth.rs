//! The answers beside mincore(2) on a mapping of root's, on each filesystem, as root and as a user, for files that the
//! user owns and for files of others. An answer is right, or it is unknown with the reason.

use std::any::Any;
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use nowait_residency::source_cache::{Coverage, SourceCache};
use nowait_residency::{
    Answer, Probe, Reason, Source, page_map, page_size, residency, residency_of_files,
    residency_of_ranges, resident_prefix,
};
use rustix::fs::{Advice, fadvise};
use slowdisk::{Filesystem, LoopDevice, Mount, ServedTree, TestMount};
use tempfile::TempDir;
use test_support::pages::resident;

/// The ID of a user without privileges, and of its group.
const USER: u32 = 65_534;
const PAGES: u64 = 41;
/// The pages that are read.
const CACHED: [Range<u64>; 4] = [0..3, 5..6, 9..17, 39..41];

/// The size of the files, which end within a page.
fn len() -> u64 {
    (PAGES - 1) * page_size() + 99
}

/// A directory on a filesystem, with the file `own` of the user and the file `foreign` of root.
struct Place {
    name: &'static str,
    dir: PathBuf,
    /// Keeps the filesystem mounted.
    _keeps: Box<dyn Any>,
}

/// Makes the two files.
fn make_files(dir: &Path) {
    let bytes: Vec<u8> = (0..len()).map(|n| (n / 7) as u8).collect();
    for name in ["own", "foreign"] {
        let path = dir.join(name);
        fs::write(&path, &bytes).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    }
    chown(dir.join("own"), Some(USER), Some(USER)).unwrap();
    open_to_all(dir);
}

/// Lets all users search a directory and those above it.
fn open_to_all(dir: &Path) {
    for dir in dir.ancestors() {
        let mode = fs::metadata(dir).unwrap().permissions().mode();
        if mode & 0o011 != 0o011 {
            // The mount point of a filesystem that cannot be changed has its mode already.
            let _ = fs::set_permissions(dir, Permissions::from_mode(mode | 0o011));
        }
    }
}

fn mounted(name: &'static str, filesystem: Filesystem) -> Option<Place> {
    if let Err(missing) = filesystem.available() {
        slowdisk::skip_or_fail(missing);
        return None;
    }
    let mount = TestMount::new(filesystem).unwrap();
    let dir = mount.path().to_owned();
    make_files(&dir);
    Some(Place {
        name,
        dir,
        _keeps: Box::new(mount),
    })
}

/// An overlay. The files are in its lower layer, and are copied up if they are `changed`.
fn overlay(name: &'static str, changed: bool) -> Option<Place> {
    let base = TestMount::new(Filesystem::Ext4).unwrap();
    let lower = base.path().join("lower");
    fs::create_dir(&lower).unwrap();
    make_files(&lower);
    let mount = TestMount::overlay(base).unwrap();
    let dir = mount.path().to_owned();
    open_to_all(&dir);
    if changed {
        for name in ["own", "foreign"] {
            let file = File::options().write(true).open(dir.join(name)).unwrap();
            file.write_all_at(b"changed", 0).unwrap();
            file.sync_all().unwrap();
        }
    }
    Some(Place {
        name,
        dir,
        _keeps: Box::new(mount),
    })
}

/// FUSE. If it `passes` reads on, the pages are those of files below it.
fn fuse(name: &'static str, passes: bool) -> Option<Place> {
    let base = TestMount::new(Filesystem::Ext4).unwrap();
    make_files(base.path());
    let served = match passes {
        true => ServedTree::passing(base.path()).unwrap(),
        false => ServedTree::new(base.path(), Duration::ZERO).unwrap(),
    };
    let dir = served.path().to_owned();
    open_to_all(&dir);
    Some(Place {
        name,
        dir,
        _keeps: Box::new((served, base)),
    })
}

/// An image that a program makes, read-only.
fn image(name: &'static str, make: impl Fn(&Path, &Path) -> Command) -> Option<Place> {
    let from = TempDir::new().unwrap();
    make_files(from.path());
    let at = TempDir::new().unwrap();
    let (image, on) = (at.path().join("image"), at.path().join("mount"));
    let Ok(made) = make(from.path(), &image).output() else {
        slowdisk::skip_or_fail(format!("no program makes an image of {name}"));
        return None;
    };
    assert!(made.status.success(), "{made:?}");
    let device = LoopDevice::attach(&image).unwrap();
    fs::create_dir(&on).unwrap();
    let mount = Mount::new(device.path(), &on, name, "").unwrap();
    open_to_all(at.path());
    Some(Place {
        name,
        dir: on,
        _keeps: Box::new((mount, device, at)),
    })
}

fn squashfs() -> Option<Place> {
    image("squashfs", |from, image| {
        let mut command = Command::new("mksquashfs");
        command.args([from, image]);
        command
    })
}

fn erofs() -> Option<Place> {
    image("erofs", |from, image| {
        let mut command = Command::new("mkfs.erofs");
        command.args([image, from]);
        command
    })
}

/// A server of NFS on this machine, and its directory. Only in a guest of test-kernels.sh: another machine may serve
/// directories of its own, and install-deps.sh does not install the package, since Debian starts it as a service.
struct Server {
    mountd: Child,
    at: TempDir,
    _base: TestMount,
}

impl Server {
    /// `None` if this is no guest, if the kernel has no NFS, or if a program is missing.
    fn start() -> Option<Server> {
        std::env::var_os("NOWAIT_TEST_KERNEL")?;
        for module in ["nfsd", "nfsv4"] {
            let _ = Command::new("modprobe").arg(module).output();
        }
        let known = fs::read_to_string("/proc/filesystems").unwrap();
        if !["nfsd", "nfs4"]
            .iter()
            .all(|it| known.contains(&format!("\t{it}\n")))
        {
            println!("this kernel has no NFS");
            return None;
        }
        let programs = ["exportfs", "rpc.nfsd", "rpc.mountd", "mount.nfs4"];
        if let Some(missing) = programs.iter().find(|it| !is_installed(it)) {
            println!("{missing} is missing: the package nfs-kernel-server is not installed");
            return None;
        }
        let base = TestMount::new(Filesystem::Ext4).unwrap();
        make_files(base.path());
        // A mount that fails is there already.
        let _ = Command::new("mount")
            .args(["-t", "nfsd", "nfsd", "/proc/fs/nfsd"])
            .output();
        fs::create_dir_all("/var/lib/nfs").unwrap();
        let exported = format!("127.0.0.1:{}", base.path().display());
        // It is the root of the server: the directories above may be on overlayfs, which cannot be exported.
        let options = "rw,fsid=0,insecure,no_root_squash,no_subtree_check";
        succeeds(Command::new("exportfs").args(["-o", options, &exported]));
        let mut mountd = Command::new("rpc.mountd");
        // With an older version it would need rpcbind(8).
        let no_older = ["--no-nfs-version", "2", "--no-nfs-version", "3"];
        mountd.arg("--foreground").args(no_older);
        let mountd = mountd.spawn().unwrap();
        let at = TempDir::new().unwrap();
        let server = Server {
            mountd,
            at,
            _base: base,
        };
        // Opens wait for the end of the time in which clients of an earlier server come back.
        let times = ["--grace-time", "10", "--lease-time", "10"];
        succeeds(
            Command::new("rpc.nfsd")
                .args(times)
                .args(["--no-nfs-version", "3", "2"]),
        );
        let mut mount = Command::new("mount");
        mount.args(["-t", "nfs4", "-o", "vers=4.2", "127.0.0.1:/"]);
        succeeds(mount.arg(server.at.path()));
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("-f")
            .arg(self.at.path())
            .output();
        let _ = Command::new("rpc.nfsd").arg("0").output();
        let _ = Command::new("exportfs").arg("-au").output();
        let _ = self.mountd.kill();
        let _ = self.mountd.wait();
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|it| it.join(program).exists())
}

fn succeeds(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {done:?}");
}

fn nfs() -> Option<Place> {
    let server = Server::start()?;
    Some(Place {
        name: "NFS",
        dir: server.at.path().to_owned(),
        _keeps: Box::new(server),
    })
}

/// The cached pages of a file: mincore(2) of all of it, as root.
fn truth(path: &Path) -> BTreeSet<u64> {
    let pages = (0..).zip(resident(path));
    pages.filter(|(_, is)| *is).map(|(page, _)| page).collect()
}

/// Evicts a file, and reads some of its pages. Which are cached then depends on the filesystem.
fn arrange(path: &Path) {
    let file = File::open(path).unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    fadvise(&file, 0, None, Advice::Random).unwrap();
    for run in CACHED {
        let mut buf = vec![0; ((run.end - run.start) * page_size()) as usize];
        file.read_at(&mut buf, run.start * page_size()).unwrap();
    }
}

/// The value, or the reason why it is unknown.
type Outcome<T> = Result<T, Reason>;

fn outcome<T>(answer: Answer<T>) -> Outcome<T> {
    match answer {
        Answer::Known { value, .. } => Ok(value),
        Answer::Unknown(reason) => Err(reason),
    }
}

/// The answers of all calls about a file: the name of the call, and the cached pages.
fn answers(path: &Path) -> Vec<(String, Outcome<BTreeSet<u64>>)> {
    let file = &File::open(path).unwrap();
    let page = page_size();
    let pages = |range: Range<u64>| range.start / page..range.end.div_ceil(page);
    let each: Vec<Range<u64>> = (0..PAGES).map(|n| n * page..(n + 1) * page).collect();
    let mut all: Vec<(String, Outcome<BTreeSet<u64>>)> = Vec::new();

    let map = outcome(page_map(file, 0..u64::MAX).unwrap());
    let of_map = map.map(|map| map.resident().flat_map(pages).collect());
    all.push(("page_map".into(), of_map));

    let sums = outcome(residency_of_ranges(file, &each).unwrap());
    let of_sums = sums.map(|sums| (0..).zip(sums).filter(|(_, it)| it.cached == 1));
    let of_sums = of_sums.map(|some| some.map(|(page, _)| page).collect());
    all.push(("residency_of_ranges".into(), of_sums));

    let prefixes = each.iter().map(|range| {
        let prefix = outcome(resident_prefix(file, range.start, page).unwrap())?;
        let within = page.min(len() - range.start);
        assert!(prefix == 0 || prefix == within, "{prefix} of {within}");
        Ok((range.start / page, prefix > 0))
    });
    let prefixes = prefixes.collect::<Outcome<Vec<_>>>().map(|it| some(&it));
    all.push(("resident_prefix".into(), prefixes));

    let source = SourceCache::default();
    let full =
        each.iter().map(
            |range| match source.ask(file.as_fd(), range.start, page as usize) {
                Coverage::Unknown(reason) => Err(reason),
                answer => Ok((range.start / page, answer == Coverage::Full)),
            },
        );
    all.push((
        "SourceCache".into(),
        full.collect::<Outcome<Vec<_>>>().map(|it| some(&it)),
    ));

    let probe = Probe::new(file).unwrap();
    let is_resident = each.iter().map(|range| {
        let answer = outcome(probe.is_resident(range.start, page).unwrap())?;
        Ok((range.start / page, answer))
    });
    let is_resident = is_resident.collect::<Outcome<Vec<_>>>();
    all.push(("is_resident".into(), is_resident.map(|it| some(&it))));

    // These count only: their numbers are compared with that of the map.
    let whole = outcome(residency(file, 0..u64::MAX).unwrap());
    let of_path = residency_of_files([path, path]).map(|it| outcome(it.unwrap()));
    let count = all[0].1.clone().map(|it| it.len() as u64);
    for (name, sum) in [whole]
        .into_iter()
        .chain(of_path)
        .zip(["residency", "first", "second"])
        .map(|(a, b)| (b, a))
    {
        let counted = sum.map(|it| (it.cached, it.pages));
        if counted.as_ref().ok() != count.as_ref().ok().map(|it| (*it, PAGES)).as_ref() {
            // The kernel may have reclaimed pages meanwhile, as the caller finds out.
            let counted = counted.map(|(cached, pages)| BTreeSet::from([cached, pages]));
            all.push((format!("{name}, not {count:?}"), counted));
        }
    }
    all
}

fn some(pages: &[(u64, bool)]) -> BTreeSet<u64> {
    let resident = pages.iter().filter(|(_, resident)| *resident);
    resident.map(|(page, _)| *page).collect()
}

/// Prints the answers about a file.
fn print_answers(path: &Path) {
    for (name, answer) in answers(path) {
        match answer {
            Ok(pages) => println!("answer {name} {pages:?}"),
            Err(reason) => println!("unknown {name} {reason:?}"),
        }
    }
}

/// The variable with the file that a child of this test asks about.
const FILE: &str = "NOWAIT_TEST_FILE";

/// The lines that a child of the user prints.
fn answers_of_user(program: &Path, path: &Path) -> Vec<String> {
    let mut command = Command::new(program);
    command.args(["--exact", "the_answers_are_those_of_mincore", "--nocapture"]);
    command.env(FILE, path).uid(USER).gid(USER);
    let done = command.current_dir("/").output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{done:?}");
    let is_answer = |line: &&str| line.starts_with("answer ") || line.starts_with("unknown ");
    text.lines().filter(is_answer).map(str::to_owned).collect()
}

/// The user may know the residency of files that it owns. Of the files of others the kernel tells nothing, except by a
/// cachestat(2) of before Linux 6.14.
fn check(place: &Place, name: &str, program: &Path) -> Result<(), String> {
    let path = place.dir.join(name);
    arrange(&path);
    let before = truth(&path);
    let of_root = answers(&path);
    let of_user = answers_of_user(program, &path);
    // The kernel may reclaim pages meanwhile.
    if truth(&path) != before {
        return Err("the pages have changed".into());
    }
    let which = format!("{} {name}", place.name);
    println!("{which}: {} pages, {:?}", before.len(), of_user.first());
    for (call, answer) in of_root {
        assert_eq!(answer.as_ref(), Ok(&before), "{which}, {call}, as root");
    }
    assert_eq!(of_user.len(), 5, "{which}: {of_user:?}");
    for line in of_user {
        let is_right = line.starts_with("answer ") && line.ends_with(&format!("{before:?}"));
        let may_be_unknown = name == "foreign";
        assert!(
            is_right || may_be_unknown && line.starts_with("unknown ") && line.ends_with("NotOurs"),
            "{which} as a user: {line}, not {before:?}"
        );
    }
    Ok(())
}

#[test]
fn the_answers_are_those_of_mincore() {
    if let Some(path) = std::env::var_os(FILE) {
        return print_answers(path.as_ref());
    }
    slowdisk::require!(slowdisk::available());
    let home = TempDir::new().unwrap();
    open_to_all(home.path());
    let program = home.path().join("program");
    slowdisk::copy_program(std::env::current_exe().unwrap(), &program).unwrap();
    let places: [&dyn Fn() -> Option<Place>; 11] = [
        &|| mounted("ext4", Filesystem::Ext4),
        &|| mounted("xfs", Filesystem::Xfs),
        &|| mounted("btrfs", Filesystem::Btrfs),
        &|| mounted("tmpfs", Filesystem::Tmpfs),
        &nfs,
        &|| overlay("overlay", false),
        &|| overlay("overlay, copied up", true),
        &|| fuse("fuse", false),
        &|| fuse("fuse, passed on", true),
        &squashfs,
        &erofs,
    ];
    for place in places.iter().filter_map(|place| place()) {
        for name in ["own", "foreign"] {
            let mut tries = 0;
            while let Err(why) = check(&place, name, &program) {
                tries += 1;
                assert!(tries < 100, "{}: {why}", place.name);
            }
        }
    }
}

/// One mapping of hugetlbfs, a directory and a pipe have no pages that are counted.
#[test]
fn what_has_no_pages_is_unknown() {
    let directory = File::open("/").unwrap();
    let answer = residency(&directory, 0..u64::MAX).unwrap();
    assert_eq!(outcome(answer), Err(Reason::NotAFile));
    let mut files = residency_of_files(["/", "/dev/null", "/nonexistent"]);
    assert_eq!(
        outcome(files.next().unwrap().unwrap()),
        Err(Reason::NotAFile)
    );
    assert_eq!(
        outcome(files.next().unwrap().unwrap()),
        Err(Reason::NotAFile)
    );
    let error = files.next().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "residency_of_files /nonexistent: No such file or directory (os error 2)"
    );
    assert!(files.next().is_none());
}

/// A process with a lease for writing. It ends when its standard input is closed.
fn leased(path: &Path) -> std::process::Child {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    const HOLDS: &str = "import fcntl, os, signal, sys\n\
        signal.signal(signal.SIGIO, lambda *_: print('broken', flush=True))\n\
        fd = os.open(sys.argv[1], os.O_RDWR)\n\
        while fcntl.fcntl(fd, fcntl.F_GETLEASE) != fcntl.F_WRLCK:\n\
        \ttry: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
        \texcept BlockingIOError: pass\n\
        print('held', flush=True)\n\
        sys.stdin.read()\n\
        print(fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_WRLCK, flush=True)";
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", HOLDS]).arg(path);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    child.stdout = Some(output.into_inner());
    child
}

/// The holder's descriptor answers, and the lease stays.
#[test]
fn a_lease_of_another_process_stays() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    fs::write(&path, vec![1; len() as usize]).unwrap();
    let child = leased(&path);
    let answer = residency_of_files([&path]).next().unwrap().unwrap();
    match answer {
        Answer::Known { value, .. } => assert_eq!((value.cached, value.pages), (PAGES, PAGES)),
        // Without the rights of ptrace(2).
        Answer::Unknown(reason) => assert_eq!(reason, Reason::Leased),
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "True\n");
}

#[test]
fn many_ranges_are_those_of_each_call() {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&vec![1; len() as usize], 0).unwrap();
    let ranges = [
        0..1,
        5..70_000,
        3..3,
        len()..u64::MAX,
        1 << 40..1 << 41,
        0..u64::MAX,
    ];
    let sums = residency_of_ranges(&file, &ranges).unwrap();
    let Answer::Known {
        value: sums,
        source,
    } = sums
    else {
        panic!("{sums:?}");
    };
    assert_eq!(sums.len(), ranges.len());
    for (range, sum) in ranges.iter().zip(&sums) {
        let single = residency(&file, range.clone()).unwrap();
        assert_eq!(
            single,
            Answer::Known {
                value: *sum,
                source
            }
        );
    }
    assert!(matches!(source, Source::Cachestat | Source::Mincore));
    #[expect(clippy::reversed_empty_ranges)]
    let wrong = residency_of_ranges(&file, &[0..1, 9..8]).unwrap_err();
    assert!(wrong.is_invalid_range());
}

/// A lease on another filesystem, of a file with the same inode number.
#[test]
fn a_lease_of_a_file_with_the_same_inode_number_is_another_one() {
    slowdisk::require!(Filesystem::Tmpfs.available());
    let mounts = [(); 2].map(|()| TestMount::new(Filesystem::Tmpfs).unwrap());
    let paths = [&mounts[0], &mounts[1]].map(|mount| mount.path().join("file"));
    paths
        .iter()
        .for_each(|path| fs::write(path, [1; 100]).unwrap());
    let inode = |path: &PathBuf| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    assert_eq!(inode(&paths[0]), inode(&paths[1]));
    let child = leased(&paths[0]);
    let answer = residency_of_files([&paths[1]]).next().unwrap().unwrap();
    assert_eq!(outcome(answer).map(|it| it.cached), Ok(1));
    child.wait_with_output().unwrap();
}

/// A path that is one of two files by turns, on a filesystem where cachestat(2) answers and on one where it is wrong.
#[test]
fn a_path_that_changes_meanwhile_has_the_answer_of_one_of_its_files() {
    slowdisk::require!(Filesystem::Overlay.available());
    let base = TestMount::new(Filesystem::Ext4).unwrap();
    let lower = base.path().join("lower");
    fs::create_dir(&lower).unwrap();
    let page = page_size() as usize;
    fs::write(lower.join("large"), vec![1; 10 * page]).unwrap();
    let overlay = TestMount::overlay(base).unwrap();
    let large = overlay.path().join("large");
    assert_eq!(fs::read(&large).unwrap().len(), 10 * page);
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (small, path) = (dir.path().join("small"), dir.path().join("path"));
    fs::write(&small, vec![1; 2 * page]).unwrap();
    std::os::unix::fs::symlink(&small, &path).unwrap();
    // The sender is dropped when the answers end, also by a panic.
    let (asks_go_on, is_over) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let _asks_go_on = asks_go_on;
        scope.spawn(|| {
            let is_over = is_over;
            let next = dir.path().join("next");
            for target in [&large, &small].iter().cycle() {
                std::os::unix::fs::symlink(target, &next).unwrap();
                fs::rename(&next, &path).unwrap();
                if is_over.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected) {
                    break;
                }
            }
        });
        // In an emulated guest a path is looked up a hundred times more slowly.
        let number = match std::env::var_os("NOWAIT_TEST_KERNEL") {
            None => 20_000,
            Some(_) => 1000,
        };
        let asks = std::iter::repeat_n(&path, number);
        let wrong = residency_of_files(asks).map(|it| outcome(it.unwrap()).unwrap());
        let wrong = wrong
            .map(|it| (it.pages, it.cached))
            .find(|it| ![(2, 2), (10, 10)].contains(it));
        assert_eq!(wrong, None);
    });
}

#[test]
fn ranges_at_the_end_of_all_files_are_answered() {
    use nowait_residency::windows::{FileWindows, Use, evict, missing};
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&vec![1; len() as usize], 0).unwrap();
    let ends = [u64::MAX, u64::MAX - 1, 1 << 63, i64::MAX as u64];
    let probe = Probe::new(&file).unwrap();
    let source = SourceCache::default();
    for end in ends {
        evict(&file, &(0..end)).unwrap();
        evict(&file, &(end - 5000..end)).unwrap();
        missing(&probe, 0..end).unwrap();
        source.ask(file.as_fd(), end - 10, 4096);
        assert!(nowait_residency::pages(end - 10, 4096) >= 1);
        let windows = FileWindows::open(&file).unwrap();
        for how in [Use::Read { readahead: 1 << 20 }, Use::Write] {
            for start in [0, end - 10] {
                let span = windows.begin(&probe, start..end, how);
                span.map(|span| windows.end(&span));
            }
        }
        drop(windows.close());
    }
}
