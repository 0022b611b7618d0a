//! Tests of the readahead of data.

use rustix::fs::{Advice, fadvise};

use super::*;
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::time::Instant;

use nowait::{StatxMask, walk};
use nowait_residency::page_size;
use rustix::fs::{CWD, Mode, inotify, mknodat};

use crate::file_queue::{LEFT_AFTER, MIN_WASTED};
use crate::sequence::Order;

/// Files with a budget.
fn within(budget: u64) -> Files {
    let files = Files::new(|| 0);
    files.0.budget.set(budget).unwrap();
    files
}

/// Takes all files that may be read now, and returns their number. The budget of `files` is 0,
/// so that no thread takes any.
fn take_all(files: &Files) -> usize {
    let mut state = files.state();
    std::iter::from_fn(|| state.take(1 << 30))
        .map(|taken| taken.1.len())
        .sum()
}

/// A directory of files `f0`, `f1`, … of 4096 bytes that are not cached, and their ids. It is
/// not in memory.
fn directory(count: usize) -> (tempfile::TempDir, Vec<Id>) {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let ids = cold_files(directory.path(), count);
    (directory, ids)
}

/// The order of their names is that of their inodes, also if the filesystem uses numbers again.
fn cold_files(directory: &Path, count: usize) -> Vec<Id> {
    let made = (0..count).map(|n| {
        let path = directory.join(format!("new{n}"));
        std::fs::write(&path, [7; 4096]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        ((stat.st_dev, stat.st_ino), path)
    });
    let mut made: Vec<(Id, PathBuf)> = made.collect();
    made.sort_unstable();
    for (n, (_, path)) in made.iter().enumerate() {
        std::fs::rename(path, directory.join(format!("f{n}"))).unwrap();
    }
    made.into_iter().map(|(id, _)| id).collect()
}

/// Also true if the filesystem does not report residency.
fn is_cached(directory: &Path, n: usize) -> bool {
    let file = std::fs::File::open(directory.join(format!("f{n}"))).unwrap();
    let known = residency(&file, 0..4096).unwrap().known();
    known.is_none_or(|residency| residency.cached == 1)
}

fn find(files: &Files, directory: &tempfile::TempDir) {
    find_below(files, directory.path());
}

fn open_root(root: &Path) -> OwnedFd {
    std::fs::File::open(root).unwrap().into()
}

fn find_below(files: &Files, root: &Path) {
    find_from(files, &Arc::new(open_root(root)));
}

fn find_from(files: &Files, root: &Arc<OwnedFd>) {
    let options = walk::Options::new().metadata(StatxMask::BASIC_STATS);
    let mut walk = options.from_fd(root.try_clone().unwrap()).unwrap();
    while let Some(found) = walk.blocking_batch() {
        files.add(root, &found.unwrap());
    }
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A file may be replaced after it was listed.
#[test]
fn a_fifo_in_the_place_of_a_file_is_not_opened() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, &fifo, inotify::WatchFlags::OPEN).unwrap();
    let root = std::fs::File::open(directory.path()).unwrap().into();
    let tried = within(1 << 30).read_ahead(&root, Path::new("fifo"), 4096);
    assert_eq!(tried, Tried::NotRead);
    let mut events = [MaybeUninit::uninit(); 512];
    let mut events = inotify::Reader::new(&watch, &mut events);
    assert!(events.next().is_err(), "the FIFO was opened");
}

#[test]
fn the_files_of_a_directory_are_read_when_some_were_opened_in_order() {
    let (directory, mut ids) = directory(50);
    ids.sort_unstable();
    let files = within(1 << 30);
    find(&files, &directory);
    files.opened((0, 0));
    files.opened(ids[0]);
    assert_eq!(files.state().summary, Summary::default());
    ids[1..8].iter().for_each(|id| files.opened(*id));
    wait_for("the last file", || is_read(&files, ids[49]));
    let before = files.summary().used;
    ids[40..].iter().for_each(|id| files.opened(*id));
    assert_eq!(files.summary().used - before, 10 * 4096);
}

/// They do not keep others from being read.
#[test]
fn cached_files_are_not_ahead_of_the_program() {
    test_support::repeat::unless_reclaimed(|| {
        let (directory, mut ids) = directory(60);
        for n in 0..60 {
            std::fs::read(directory.path().join(format!("f{n}"))).unwrap();
        }
        ids.sort_unstable();
        let files = within(1 << 30);
        find(&files, &directory);
        ids[..3].iter().for_each(|id| files.opened(*id));
        wait_for("all files", || files.state().summary.files >= 57);
        wait_for("the end", || files.state().outstanding == 0);
        assert!(files.state().directories.values().all(|it| it.ahead == 0));
    });
}

fn is_read(files: &Files, id: Id) -> bool {
    files.state().files[&id].read > 0
}

#[test]
fn each_file_in_order_allows_more_to_be_read() {
    let (directory, mut ids) = directory(60);
    ids.sort_unstable();
    let files = within(0);
    find(&files, &directory);
    let read = ids[..6].iter().map(|id| {
        files.opened(*id);
        take_all(&files)
    });
    // One file, and then the number up to 4, 9, 16 and 25 that are not used.
    assert_eq!(read.collect::<Vec<_>>(), [0, 1, 4, 6, 8, 10]);
}

#[test]
fn nothing_is_read_for_a_program_that_opens_files_in_no_order() {
    // Inodes in the order of the names: other programs may have left gaps.
    let made = std::iter::repeat_with(|| directory(60));
    let (directory, ids) = made.take(1000).find(|(_, ids)| ids.is_sorted()).unwrap();
    let files = within(0);
    find(&files, &directory);
    let unlisted = |it: &mut FilesOfDirectory| it.positions = Some(HashMap::new());
    files.state().directories.values_mut().for_each(unlisted);
    for n in 0..20 {
        files.opened(ids[40 + n]);
        files.opened(ids[39 - n]);
        assert_eq!(take_all(&files), 0);
    }
}

#[test]
fn a_file_that_was_opened_before_it_was_found_is_not_read() {
    let (directory, mut ids) = directory(20);
    ids.sort_unstable();
    let files = within(0);
    let stat = rustix::fs::stat(directory.path()).unwrap();
    let id = (stat.st_dev, stat.st_ino);
    for n in 0..5 {
        assert!(!files.opened_name(id, Path::new(&format!("f{n}"))));
    }
    // A directory may be walked twice.
    find(&files, &directory);
    find(&files, &directory);
    for n in 5..10 {
        assert!(files.opened_name(id, Path::new(&format!("f{n}"))));
    }
    let state = files.state();
    assert_eq!(state.files.len(), 10);
    assert_eq!(state.directories[&id].names.len(), 10);
    assert_eq!(
        state.directories[&id].unread.len(),
        15,
        "five of them were opened"
    );
}

#[test]
fn one_file_of_each_directory_is_no_order() {
    let root = tempfile::tempdir().unwrap();
    let files = within(0);
    let ids = (0..20).map(|n| {
        let path = root.path().join(n.to_string());
        std::fs::create_dir(&path).unwrap();
        cold_files(&path, 20)[0]
    });
    let ids: Vec<Id> = ids.collect();
    find(&files, &root);
    for id in ids {
        files.opened(id);
        assert_eq!(take_all(&files), 0);
    }
}

#[test]
fn a_directory_whose_files_are_not_opened_is_let_go() {
    let (directory, mut ids) = directory(20);
    ids.sort_unstable();
    let files = within(0);
    find(&files, &directory);
    let is_open = || {
        let state = files.state();
        state.directories.values().any(|it| it.root.is_some())
    };
    assert!(is_open());
    files.let_go(|_| false);
    assert!(is_open());
    files.let_go(|_| true);
    assert!(!is_open());
    // Another walk finds the files again.
    find(&files, &directory);
    assert!(is_open());
    files.let_go(|_| true);
    ids.iter().for_each(|id| files.opened(*id));
    assert_eq!(take_all(&files), 0);
}

/// The program opens files of other directories meanwhile.
#[test]
fn a_directory_whose_files_are_not_opened_any_more_is_let_go() {
    let files = within(0);
    let found = [3, 3].map(|count| {
        let (directory, ids) = directory(count);
        find(&files, &directory);
        (directory, ids)
    });
    let is_open = |(_, ids): &(_, Vec<Id>)| {
        let state = files.state();
        let directory = state.files.get(&ids[2]).map(|it| it.directory);
        directory.is_some_and(|id| state.directories[&id].root.is_some())
    };
    files.let_go_unused(Instant::now() - Duration::from_secs(600));
    assert!(found.iter().all(is_open));
    let since = Instant::now();
    files.opened(found[1].1[0]);
    files.let_go_unused(since);
    assert_eq!([is_open(&found[0]), is_open(&found[1])], [false, true]);
    // Another walk finds the files again.
    find(&files, &found[0].0);
    assert!(is_open(&found[0]));
}

/// The program is slow, and the walk has found files in other directories.
#[test]
fn a_walk_whose_first_files_are_opened_is_not_let_go() {
    let files = within(0);
    let root = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        std::fs::create_dir(root.path().join(name)).unwrap();
    }
    let [first, later] = ["a", "b"].map(|name| cold_files(&root.path().join(name), 3));
    find_below(&files, root.path());
    // Nothing is left to be read in the directory of the program.
    let directory = files.directory_of(first[0]).unwrap();
    let unread = |id: &Id| files.state().directories[id].unread.len();
    files
        .state()
        .directories
        .get_mut(&directory)
        .unwrap()
        .unread
        .clear();
    assert_eq!(unread(&directory), 0);
    let since = Instant::now();
    files.opened(first[0]);
    files.let_go_unused(since);
    assert_eq!(unread(&files.directory_of(later[0]).unwrap()), 3);
}

/// The files that the program has used may be evicted by then.
#[test]
fn a_later_walk_does_not_find_files_that_the_program_has_opened() {
    let files = within(0);
    let (directory, ids) = directory(3);
    files.survey_before_reading(ReadAheadFiles::default());
    find(&files, &directory);
    files.opened(ids[0]);
    find(&files, &directory);
    let found = ids.iter().map(|id| files.directory_of(*id).is_some());
    assert_eq!(found.collect::<Vec<_>>(), [false, true, true]);
}

/// inotify(7) reports no file that a slow program has opened, and no other walk comes.
#[test]
fn a_tree_that_the_user_has_named_is_not_let_go() {
    let files = within(0);
    let (directory, ids) = directory(3);
    let root = Arc::new(open_root(directory.path()));
    files.keep(&root);
    find_from(&files, &root);
    files.let_go_unused(Instant::now() + Duration::from_secs(600));
    files.entered(files.directory_of(ids[0]).unwrap());
    assert_eq!(take_all(&files), 3);
}

#[test]
fn few_roots_are_open() {
    let files = within(0);
    let (directory, ids) = directory(3);
    let open = || open_root(directory.path());
    let roots: Vec<_> = (0..200).map(|_| Arc::new(open())).collect();
    files.keep(&roots[0]);
    for root in &roots {
        files.state().uses(root);
        files.state().uses(&roots[1]);
    }
    let is_open = |root: &&Arc<OwnedFd>| files.state().roots.contains(root);
    assert!(roots[..2].iter().all(|root| is_open(&root)));
    assert!((33..=64).contains(&roots.iter().filter(is_open).count()));
    // Those that nothing has open do not count.
    drop(roots);
    for _ in 0..200 {
        files.state().uses(&Arc::new(open()));
    }
    find(&files, &directory);
    assert!(files.directory_of(ids[0]).is_some());
}

#[test]
fn a_directory_whose_files_were_all_opened_is_let_go() {
    let (directory, ids) = directory(20);
    let files = within(0);
    find(&files, &directory);
    ids.iter().for_each(|id| files.opened(*id));
    assert!(
        files
            .state()
            .directories
            .values()
            .all(|it| it.root.is_none())
    );
}

/// A program that opens each tenth file, as one that looks at the names does.
#[test]
fn readahead_ends_if_most_files_are_wasted() {
    let root = tempfile::tempdir().unwrap();
    let files = within(0);
    let directories: Vec<Vec<Id>> = (0..40)
        .map(|n| {
            let path = root.path().join(n.to_string());
            std::fs::create_dir(&path).unwrap();
            let mut ids = cold_files(&path, 40);
            ids.sort_unstable();
            ids
        })
        .collect();
    find(&files, &root);
    let (mut read, mut opened) = (0, 0);
    for id in directories.iter().flat_map(|ids| ids.iter().step_by(10)) {
        files.opened(*id);
        read += take_all(&files);
        opened += 1;
        if files.gives_no_gain() {
            break;
        }
    }
    assert!(files.gives_no_gain());
    // The program has left the first directories.
    assert!(opened > LEFT_AFTER && opened < 100, "{opened}");
    let state = files.state();
    assert!(state.wasted > MIN_WASTED + state.used);
    drop(state);
    assert!(read > 32, "{read}");
}

/// The last thread of a readahead that has ended gives its roots back. The program opens more files later.
#[test]
fn files_that_were_read_are_used_after_the_end_of_readahead() {
    let (directory, mut ids) = directory(50);
    ids.sort_unstable();
    let files = within(1 << 30);
    find(&files, &directory);
    ids[..8].iter().for_each(|id| files.opened(*id));
    wait_for("the last file", || is_read(&files, ids[49]));
    // A thread that has taken files has read them when it waits.
    wait_for("the reads", || {
        let state = files.state();
        state.idle == state.threads
    });
    files.end_readahead();
    wait_for("the threads", || files.state().threads == 0);
    let stat = rustix::fs::stat(directory.path()).unwrap();
    let id = (stat.st_dev, stat.st_ino);
    let before = files.summary().used;
    for n in 40..50 {
        assert!(files.opened_name(id, Path::new(&format!("f{n}"))));
    }
    assert_eq!(files.summary().used - before, 10 * 4096);
    let state = files.state();
    assert!(state.directories.values().all(|it| it.root.is_none()));
}

/// The program opens a file, and a second walk finds it again.
#[test]
fn a_file_that_two_walks_have_found_is_read_once() {
    let (directory, mut ids) = directory(20);
    ids.sort_unstable();
    let files = within(0);
    find(&files, &directory);
    ids[10..19].iter().for_each(|id| files.opened(*id));
    find(&files, &directory);
    ids[..8].iter().for_each(|id| files.opened(*id));
    while take_all(&files) > 0 {}
    let state = files.state();
    let read: u64 = state.files.values().map(|file| file.read).sum();
    assert_eq!(state.outstanding, read);
    let ahead: u64 = state.directories.values().map(|it| it.ahead).sum();
    assert_eq!(ahead * 4096, read);
}

/// The program opens a file, which a walk then finds by its name in another directory.
#[test]
fn a_file_with_names_in_two_directories_is_read_in_one() {
    let root = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let (one, two) = (root.path().join("1"), root.path().join("2"));
    std::fs::create_dir(&one).unwrap();
    std::fs::create_dir(&two).unwrap();
    let ids = cold_files(&one, 20);
    std::fs::hard_link(one.join("f10"), two.join("link")).unwrap();
    let files = within(0);
    find_below(&files, &one);
    files.opened(ids[10]);
    find_below(&files, &two);
    ids[..8].iter().for_each(|id| files.opened(*id));
    while take_all(&files) > 0 {}
    files.opened(ids[10]);
    let state = files.state();
    let read = state.files.values().filter(|file| file.read > 0);
    let ahead: u64 = state.directories.values().map(|it| it.ahead).sum();
    assert_eq!(ahead, read.count() as u64);
}

/// tar(1) reads the directories in a directory before the files that come later there.
#[test]
fn the_files_of_a_directory_are_used_after_those_of_the_directories_in_it() {
    let root = tempfile::tempdir().unwrap();
    let below = root.path().join("below");
    std::fs::create_dir(&below).unwrap();
    let mut above = cold_files(root.path(), 200);
    above.sort_unstable();
    let mut below = cold_files(&below, 200);
    below.sort_unstable();
    let files = within(0);
    find(&files, &root);
    for id in above[..40].iter().chain(&below).chain(&above[40..]) {
        files.opened(*id);
        take_all(&files);
        assert!(!files.gives_no_gain());
        assert_eq!(files.state().wasted, 0);
    }
    assert!(files.state().used > 380);
}

#[test]
fn a_directory_is_read_after_two_walks_with_different_roots() {
    let above = tempfile::tempdir().unwrap();
    let below = above.path().join("d");
    std::fs::create_dir(&below).unwrap();
    let ids = cold_files(&below, 5);
    let files = within(1 << 30);
    find_below(&files, above.path());
    find_below(&files, &below);
    ids[..3].iter().for_each(|id| files.opened(*id));
    wait_for("cached pages", || (3..5).all(|n| is_cached(&below, n)));
}

#[test]
fn no_more_than_the_budget_is_ahead() {
    let (directory, mut ids) = directory(60);
    let files = within(10 * 4096);
    find(&files, &directory);
    ids.sort_unstable();
    for opened in 8..=50 {
        for id in &ids[..opened] {
            files.opened(*id);
        }
        wait_for("the next files", || {
            let state = files.state();
            let read = state.files.values().filter(|file| file.read > 0).count();
            assert!(read <= 10, "{read} after {opened}");
            assert_eq!(state.outstanding, read as u64 * 4096);
            // A thread is woken when an eighth is free, which is two files.
            read >= 9.min(60 - opened)
        });
    }
}

#[test]
fn files_are_read_in_the_order_in_which_the_program_opens_them() {
    let (directory, ids) = directory(30);
    for order in [Order::Name, Order::Inode, Order::Listing] {
        let files = within(1 << 30);
        find(&files, &directory);
        let mut state = files.state();
        state.opened = MIN_OPENED;
        state.sequence.steps[order as usize] = 100;
        let position = |n: usize| (ids[n].1, (n * 7 % 30) as u32);
        let positions: HashMap<u64, u32> = (0..30).map(position).collect();
        for found in state.directories.values_mut() {
            found.positions = Some(positions.clone());
        }
        let mut taken = Vec::new();
        while let Some((_, names)) = state.take(1 << 30) {
            taken.extend(names.into_iter().map(|(_, name, _)| name));
        }
        let mut expected: Vec<(Id, PathBuf)> =
            (0..30).map(|n| (ids[n], format!("f{n}").into())).collect();
        match order {
            Order::Name => expected.sort_by(|a, b| a.1.cmp(&b.1)),
            Order::Inode => expected.sort(),
            Order::Listing => expected.sort_by_key(|it| positions[&it.0.1]),
        }
        let taken = taken.iter().map(|name| &**name);
        assert!(taken.eq(expected.iter().map(|it| &*it.1)), "{order:?}");
    }
}

#[test]
fn the_order_of_the_program_is_seen() {
    let (directory, ids) = directory(40);
    let mut by_name: Vec<usize> = (0..40).collect();
    by_name.sort_by_key(|n| format!("f{n}"));
    let mut by_inode: Vec<usize> = (0..40).collect();
    by_inode.sort_by_key(|n| ids[*n]);
    let listed = std::fs::read_dir(directory.path()).unwrap().map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name[1..].parse().unwrap()
    });
    let orders = [
        (Order::Name, by_name),
        (Order::Inode, by_inode),
        (Order::Listing, listed.collect()),
    ];
    for (order, numbers) in orders {
        let files = within(0);
        find(&files, &directory);
        numbers.iter().for_each(|n| files.opened(ids[*n]));
        let sequence = &files.state().sequence;
        assert_eq!(sequence.steps[order as usize], 39);
        assert_eq!(sequence.best().1, 39);
    }
}

#[test]
fn files_that_inotify_counted_are_used_in_the_order_in_which_they_were_read() {
    let (directory, _) = directory(20);
    let files = within(1 << 30);
    find(&files, &directory);
    let id = *files.state().directories.keys().next().unwrap();
    files.entered(id);
    wait_for("20 files", || files.state().summary.files == 20);
    // This process has opened them.
    files.opened_in(id, 20);
    assert_eq!(files.state().summary.used, 0);
    files.opened_in(id, 5);
    assert_eq!(files.state().summary.used, 5 * 4096);
    files.opened_in(id, 15);
    assert_eq!(files.state().summary.used, 20 * 4096);
}

/// They are evicted when they are not in use any more.
#[test]
fn files_that_were_read_and_then_opened_are_told_of() {
    let (directory, ids) = directory(20);
    let files = within(0);
    let surveyed = ReadAheadFiles::default();
    files.survey_before_reading(surveyed.clone());
    find(&files, &directory);
    files.opened(ids[0]);
    files.opened(ids[1]);
    assert!(take_all(&files) > 0);
    let is_read = |id: &&Id| files.state().is_ahead(**id);
    let read: Vec<Id> = ids.iter().filter(is_read).copied().collect();
    assert!(!read.is_empty() && read.len() < ids.len());
    ids.iter().for_each(|id| files.opened(*id));
    assert_eq!(surveyed.take_opened(), read);
    assert_eq!(surveyed.take_opened(), []);
}

/// Its pages would stay.
#[test]
fn a_file_whose_survey_has_too_many_ranges_is_not_read_ahead() {
    const PAGES: u64 = 100;
    let page = page_size();
    let (directory, ids) = directory(1);
    let path = directory.path().join("f0");
    std::fs::write(&path, vec![7; (PAGES * page) as usize]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    fadvise(&file, 0, None, Advice::Random).unwrap();
    for start in (1..PAGES).step_by(2).map(|number| number * page) {
        rustix::io::pread(&file, &mut [0; 1], start).unwrap();
    }
    let cached = || {
        residency(&file, 0..u64::MAX)
            .unwrap()
            .known()
            .unwrap()
            .cached
    };
    assert_eq!(cached(), PAGES / 2);
    let files = within(1 << 30);
    let surveyed = ReadAheadFiles::default();
    surveyed.lock().take(1_000_000);
    files.survey_before_reading(surveyed.clone());
    find(&files, &directory);
    files.entered(files.directory_of(ids[0]).unwrap());
    wait_for("it was tried", || files.directory_of(ids[0]).is_none());
    assert_eq!(cached(), PAGES / 2);
    let summary = files.summary();
    assert_eq!((summary.files, summary.bytes), (0, 0));
    assert!(surveyed.lock().take(0).is_empty());
}
