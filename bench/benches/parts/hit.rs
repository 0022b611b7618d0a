//! A read of 4 KiB that are in the page cache, beside pread(2).

use std::hint::black_box;
use std::os::unix::fs::FileExt;

use criterion::{Criterion, Throughput};
use futures_util::FutureExt;
use nowait::read::{Cached, cached};

const BLOCK: usize = 4096;
const OFFSET: u64 = 4096;

pub fn bench(criterion: &mut Criterion) {
    let bytes: Vec<u8> = (0..4 * BLOCK).map(|i| (i % 251) as u8).collect();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, &bytes).unwrap();
    let expected = &bytes[OFFSET as usize..][..BLOCK];
    let plain = std::fs::File::open(&path).unwrap();
    let file = nowait::File::blocking_open(&path).unwrap();
    let mut buf = vec![0u8; BLOCK];

    let pread = |buf: &mut [u8]| plain.read_exact_at(buf, black_box(OFFSET)).unwrap();
    let from_cache = |buf: &mut [u8]| cached(&plain, buf, black_box(OFFSET)).unwrap();
    // A hit is ready at the first poll.
    let read_at = |buf: Vec<u8>| {
        let read = file.read_at(buf, black_box(OFFSET));
        read.now_or_never().expect("data is cached")
    };

    pread(&mut buf);
    assert_eq!(buf, expected);
    buf.fill(0);
    assert!(matches!(from_cache(&mut buf), Cached::All(BLOCK)));
    assert_eq!(buf, expected);
    buf.fill(0);
    let read = read_at(buf);
    assert_eq!(read.provenance.cached, BLOCK);
    assert_eq!((read.result.unwrap(), &*read.buf), (BLOCK, expected));
    buf = read.buf;

    let mut group = criterion.benchmark_group("hit");
    group.throughput(Throughput::Bytes(BLOCK as u64));
    group.bench_function("pread", |b| b.iter(|| pread(&mut buf)));
    group.bench_function("read::cached", |b| b.iter(|| from_cache(&mut buf)));
    group.bench_function("File::read_at", |b| {
        b.iter(|| buf = read_at(std::mem::take(&mut buf)).buf)
    });
    group.finish();
}
