//! The entries of one getdents64(2) call on a cached directory, beside the call alone.

use std::mem::MaybeUninit;

use criterion::{Criterion, Throughput};
use nowait::internals::Dirents;
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, open, seek};

/// The number of entries. They fit in the buffer of one call.
const ENTRIES: usize = 256;

pub fn bench(criterion: &mut Criterion) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let names = (0..ENTRIES).map(|n| format!("file-{n:04}"));
    let mut bytes = 0;
    for name in names {
        std::fs::write(dir.path().join(&name), "").unwrap();
        bytes += name.len();
    }
    let dirents = Dirents::open(dir.path()).unwrap();
    assert_eq!(dirents.list().unwrap(), (ENTRIES, bytes));

    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = open(dir.path(), flags, Mode::empty()).unwrap();
    let mut buffer = [MaybeUninit::<u8>::uninit(); Dirents::BUFFER_SIZE];
    // The call, and the first entry of its buffer.
    let mut call = || {
        seek(&fd, SeekFrom::Start(0)).unwrap();
        let mut entries = RawDir::new(&fd, &mut buffer);
        entries.next().unwrap().unwrap().ino()
    };
    call();

    let mut group = criterion.benchmark_group("dirents");
    group.throughput(Throughput::Elements(ENTRIES as u64));
    group.bench_function("getdents64", |b| b.iter(&mut call));
    group.bench_function("entries", |b| b.iter(|| dirents.list().unwrap()));
    group.finish();
}
