//! Filesystems that lie: in what they call an entry, and in where a directory goes on.

#[path = "common/directories.rs"]
mod directories;
#[path = "common/engines.rs"]
mod engines;

use std::ffi::OsStr;
use std::time::{Duration, UNIX_EPOCH};

use directories::{engines as all_engines, with_metadata};
use engines::Limit;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyDirectory, ReplyEmpty, ReplyEntry, Request,
};
use nowait::scan::{FileType as Kind, Limits, Options, readahead};
use nowait::{ErrorKind, Walk, walk};

/// One directory. Each entry: its name, inode number and kind as the directory tells them, the offset
/// that it says the next one is at, and inode number and kind as they are.
struct Liar(Vec<Told>);

struct Told {
    name: String,
    told: (u64, FileType),
    next: u64,
    real: (u64, FileType),
}

fn attr(ino: u64, kind: FileType) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o700,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

const FOREVER: Duration = Duration::from_secs(3600);

impl Filesystem for Liar {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.0.iter().find(|told| told.name.as_str() == name) {
            Some(told) => reply.entry(&FOREVER, &attr(told.real.0, told.real.1), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let told = self.0.iter().find(|told| told.real.0 == ino.0);
        let kind = told.map_or(FileType::Directory, |told| told.real.1);
        reply.attr(&FOREVER, &attr(ino.0, kind));
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        for told in self.0.iter().skip(offset as usize) {
            if reply.add(INodeNo(told.told.0), told.next, told.told.1, &told.name)
                || told.next <= offset
            {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}

fn mount(entries: Vec<Told>) -> (BackgroundSession, tempfile::TempDir) {
    let at = tempfile::tempdir().unwrap();
    let session = fuser::spawn_mount(Liar(entries), at.path(), &Config::default()).unwrap();
    (session, at)
}

#[test]
fn statx_is_believed_and_the_directory_only_where_nothing_was_asked() {
    slowdisk::require!(slowdisk::available());
    let lie = |name: &str, i: u64, told, real| Told {
        name: name.into(),
        told: (100 + i, told),
        next: i,
        real: (10 + i, real),
    };
    let (session, at) = mount(vec![
        lie(
            "a file called a directory",
            1,
            FileType::Directory,
            FileType::RegularFile,
        ),
        lie(
            "a directory called a file",
            2,
            FileType::RegularFile,
            FileType::Directory,
        ),
        lie(
            "a pipe called a link",
            3,
            FileType::Symlink,
            FileType::NamedPipe,
        ),
    ]);
    let _limit = Limit::new("liar".into());
    for engine in all_engines() {
        let options = Options::new().engine(&engine);
        assert_eq!(
            options.blocking_open(at.path()).unwrap().plan().filesystem,
            Some("fuse")
        );
        for entry in options
            .blocking_open(at.path())
            .unwrap()
            .map(Result::unwrap)
        {
            assert!(entry.ino() > 100, "{entry:?}");
        }
        let mut kinds = Vec::new();
        for entry in with_metadata()
            .engine(&engine)
            .blocking_open(at.path())
            .unwrap()
            .map(Result::unwrap)
        {
            assert!(entry.ino() < 100, "{entry:?}");
            kinds.push(entry.file_type());
        }
        kinds.sort_by_key(|kind| kind.as_raw_mode());
        assert_eq!(kinds, [Kind::Fifo, Kind::Directory, Kind::RegularFile]);

        // A walk enters what is a directory, as far as it knows, and stumbles over nothing.
        let walk = walk::Options::new()
            .engine(&engine)
            .blocking_open(at.path())
            .unwrap();
        assert_eq!(walk.map(Result::unwrap).count(), 3);
        let fields = nowait::scan::StatxFlags::BASIC_STATS;
        let walk = walk::Options::new()
            .metadata(fields)
            .depth(1)
            .engine(&engine)
            .blocking_open(at.path());
        let below = walk
            .unwrap()
            .map(Result::unwrap)
            .filter(|e| e.depth() == 2)
            .count();
        assert_eq!(
            below, 3,
            "this filesystem's every directory has the same entries"
        );
    }
    session.umount_and_join().unwrap();
}

#[test]
fn a_directory_that_leads_back_is_ended() {
    slowdisk::require!(slowdisk::available());
    let entry = |i: u64, next| Told {
        name: format!("name{i}"),
        told: (10 + i, FileType::RegularFile),
        next,
        real: (10 + i, FileType::RegularFile),
    };
    for (length, back) in [(1, 0), (3, 1), (2_000, 0), (2_000, 1_999), (5_000, 700)] {
        let mut entries: Vec<Told> = (0..length).map(|i| entry(i, i + 1)).collect();
        entries.last_mut().unwrap().next = back;
        let (session, at) = mount(entries);
        let _limit = Limit::new(format!("{length} entries, back to {back}"));
        for engine in all_engines() {
            for caller in [true, false] {
                let mut scan = Options::new()
                    .engine(&engine)
                    .caller(caller)
                    .blocking_open(at.path())
                    .unwrap();
                let (mut names, mut errors) = (std::collections::HashSet::new(), Vec::new());
                while let Some(batch) = scan.blocking_batch() {
                    match batch {
                        Ok(batch) => names.extend(batch.iter().map(|e| e.name().to_owned())),
                        Err(error) => errors.push(error),
                    }
                }
                assert_eq!(names.len() as u64, length);
                assert_eq!(errors.len(), 1);
                assert_eq!(errors[0].kind(), ErrorKind::Repeats);
                assert_eq!(errors[0].path(), Some(at.path()));
            }
            let ahead = readahead(at.path(), &Limits::new().engine(&engine)).unwrap();
            ahead.blocking_wait();
            let errors = Walk::blocking_open(at.path())
                .unwrap()
                .filter(|e| e.is_err())
                .count();
            assert_eq!(errors, 1);
        }
        session.umount_and_join().unwrap();
    }
}
