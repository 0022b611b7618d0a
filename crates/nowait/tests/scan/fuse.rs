//! Filesystems that return wrong types or wrong positions for their entries.

use nowait::FileType as Kind;
use nowait::scan::{Options, readahead};
use nowait::{ErrorKind, Walk, walk};
use slowdisk::{FileType, ServedDirectory, ServedEntry};

use crate::common::by_workers::found;
use crate::common::limit::Limit;
use crate::directories::{engines, with_metadata};

#[test]
fn statx_is_believed_and_the_directory_only_where_nothing_was_asked() {
    slowdisk::require!(slowdisk::available());
    let lie = |name: &str, i: u64, listed, actual| ServedEntry {
        name: name.into(),
        listed: (100 + i, listed),
        next: i,
        actual: (10 + i, actual),
    };
    let at = ServedDirectory::new(vec![
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
    ])
    .unwrap();
    let _limit = Limit::new("liar".into());
    for engine in engines() {
        let options = Options::new().engine(&engine);
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
        kinds.sort_by_key(|kind| format!("{kind:?}"));
        assert_eq!(kinds, [Kind::Dir, Kind::Fifo, Kind::File]);

        // A walk enters the entries that are reported as directories, and does not fail.
        let walk = walk::Options::new()
            .engine(&engine)
            .blocking_open(at.path())
            .unwrap();
        assert_eq!(walk.map(Result::unwrap).count(), 3);
        let fields = nowait::StatxMask::BASIC_STATS;
        let walk = walk::Options::new()
            .metadata(fields)
            .max_depth(2)
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
}

#[test]
fn a_directory_that_leads_back_is_ended() {
    slowdisk::require!(slowdisk::available());
    let entry = |i: u64, next| ServedEntry {
        name: format!("name{i}"),
        listed: (10 + i, FileType::RegularFile),
        next,
        actual: (10 + i, FileType::RegularFile),
    };
    for (length, back) in [(1, 0), (3, 1), (2_000, 0), (2_000, 1_999), (5_000, 700)] {
        let mut entries: Vec<ServedEntry> = (0..length).map(|i| entry(i, i + 1)).collect();
        entries.last_mut().unwrap().next = back;
        let at = ServedDirectory::new(entries).unwrap();
        let _limit = Limit::new(format!("{length} entries, back to {back}"));
        for engine in engines() {
            for caller in [true, false] {
                let mut scan = Options::new()
                    .engine(&engine)
                    .blocking_open(at.path())
                    .unwrap();
                let (mut names, mut errors) = (std::collections::HashSet::new(), Vec::new());
                for entry in found(&mut scan, caller) {
                    match entry {
                        Ok(entry) => drop(names.insert(entry.file_name().to_owned())),
                        Err(error) => errors.push(error),
                    }
                }
                assert_eq!(names.len() as u64, length);
                assert_eq!(errors.len(), 1);
                assert_eq!(errors[0].kind(), ErrorKind::Repeats);
                assert_eq!(errors[0].path(), Some(at.path()));
            }
            let ahead = readahead(at.path(), &Options::new().engine(&engine)).unwrap();
            ahead.blocking_wait();
            let errors = Walk::blocking_open(at.path())
                .unwrap()
                .filter(|e| e.is_err())
                .count();
            assert_eq!(errors, 1);
        }
    }
}
