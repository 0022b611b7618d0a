//! `open_and_read`: a worker that opens a small file reads it, too. The stream is that of a file that was just opened.

use std::fs;
use std::future::Future;
use std::io::{self, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll, Waker};

use ::tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use nowait::tokio::File;
use nowait::{OpenOptions, OpenedFile};
use slowdisk::Filesystem;

use crate::common::children::alone;
use crate::common::files::{pattern, patterned, scratch};
use crate::common::forked::forked;
use crate::common::mounts::mounted;

const LEN: usize = 20_000;

const LIMIT: u64 = 64 << 10;

/// A file, and a path of it that the kernel does not resolve from its caches: a worker opens it.
struct Uncached {
    _dir: tempfile::TempDir,
    path: PathBuf,
    _open: fs::File,
    by_worker: PathBuf,
}

impl Uncached {
    fn new(len: usize) -> Uncached {
        let dir = scratch();
        let path = patterned(dir.path(), "file", len);
        let open = fs::File::open(&path).unwrap();
        let by_worker = format!("/proc/self/fd/{}", open.as_raw_fd()).into();
        Uncached {
            _dir: dir,
            path,
            _open: open,
            by_worker,
        }
    }
}

fn run<T>(future: impl Future<Output = io::Result<T>>) -> T {
    let runtime = ::tokio::runtime::Builder::new_current_thread();
    { runtime }.build().unwrap().block_on(future).unwrap()
}

async fn rest(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

fn position(file: &File) -> u64 {
    rustix::fs::tell(file.as_fd()).unwrap()
}

/// Opens a file by a worker, which has read it if `reads`: then its bytes are returned after they were overwritten.
async fn opened(file: &Uncached, limit: u64, reads: bool) -> io::Result<File> {
    let (opened, metadata) = File::open_and_read(&file.by_worker, limit).await?;
    assert_eq!(metadata.len(), fs::metadata(&file.path)?.len());
    let old = fs::read(&file.path)?;
    fs::write(&file.path, vec![0; old.len()])?;
    let mut opened = opened;
    let bytes = rest(&mut opened).await?;
    assert_eq!(bytes == old, reads);
    assert_eq!(bytes == vec![0; old.len()], !reads);
    fs::write(&file.path, old)?;
    let (opened, _) = File::open_and_read(&file.by_worker, limit).await?;
    Ok(opened)
}

#[test]
fn the_stream_has_the_contents_and_the_position_of_an_open_file() {
    run(async {
        let file = Uncached::new(LEN);
        let mut opened = opened(&file, LIMIT, true).await?;
        assert_eq!(position(&opened), 0);
        let mut part = [0; 7];
        opened.read_exact(&mut part).await?;
        assert_eq!(part[..], pattern(0, 7)[..]);
        assert_eq!(opened.seek(SeekFrom::Current(3)).await?, 10);
        assert_eq!(position(&opened), 10);
        assert_eq!(rest(&mut opened).await?, pattern(10, LEN - 10));
        assert_eq!(position(&opened), LEN as u64);
        // Bytes that were added since are read.
        fs::write(&file.path, pattern(0, LEN + 5))?;
        assert_eq!(rest(&mut opened).await?, pattern(LEN as u64, 5));
        Ok(())
    });
}

#[test]
fn a_seek_before_the_first_read() {
    run(async {
        let file = Uncached::new(LEN);
        let ends = [
            (SeekFrom::Start(5), 5),
            (SeekFrom::Current(6), 6),
            (SeekFrom::End(-8), LEN as u64 - 8),
        ];
        for (to, at) in ends {
            let mut opened = opened(&file, LIMIT, true).await?;
            assert_eq!(opened.seek(to).await?, at);
            assert_eq!(rest(&mut opened).await?, pattern(at, LEN - at as usize));
        }
        Ok(())
    });
}

#[test]
fn a_larger_file_is_read_later() {
    run(async {
        let file = Uncached::new(LEN);
        let mut opened = opened(&file, LEN as u64 - 1, false).await?;
        assert_eq!(rest(&mut opened).await?, pattern(0, LEN));
        Ok(())
    });
}

#[test]
fn a_clone_and_the_file_of_the_standard_library_begin_at_the_start() {
    run(async {
        let file = Uncached::new(LEN);
        let mut first = opened(&file, LIMIT, true).await?;
        let mut second = first.try_clone().await?;
        assert_eq!(rest(&mut second).await?, pattern(0, LEN));
        assert_eq!(rest(&mut first).await?, []);
        let mut std = opened(&file, LIMIT, true).await?.into_std().await;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut std, &mut bytes)?;
        assert_eq!(bytes, pattern(0, LEN));
        Ok(())
    });
}

/// The position is that of any open file, whatever was done before.
#[test]
fn the_rest_is_left_to_other_holders() {
    async fn nothing(_: &mut File) -> io::Result<usize> {
        Ok(0)
    }
    async fn flush(file: &mut File) -> io::Result<usize> {
        file.flush().await.map(|()| 0)
    }
    async fn read_nothing(file: &mut File) -> io::Result<usize> {
        file.read(&mut []).await
    }
    async fn seek_before_the_start(file: &mut File) -> io::Result<usize> {
        let sought = file.seek(SeekFrom::End(-1 - LEN as i64)).await;
        assert_eq!(sought.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        Ok(0)
    }
    async fn read_some(file: &mut File) -> io::Result<usize> {
        file.read_exact(&mut [0; 7]).await
    }
    macro_rules! check {
        ($($first:ident)*) => {$(
            run(async {
                let file = Uncached::new(LEN);
                let mut seen = opened(&file, LIMIT, true).await?;
                let n = $first(&mut seen).await?;
                assert_eq!(position(&seen), n as u64);
                let mut opened_again = opened(&file, LIMIT, true).await?;
                $first(&mut opened_again).await?;
                let mut clone = opened_again.try_clone().await?;
                assert_eq!(rest(&mut clone).await?, pattern(n as u64, LEN - n));
                assert_eq!(rest(&mut opened_again).await?, []);
                let mut std = opened(&file, LIMIT, true).await?;
                $first(&mut std).await?;
                let (mut std, mut bytes) = (std.into_std().await, Vec::new());
                io::Read::read_to_end(&mut std, &mut bytes)?;
                assert_eq!(bytes, pattern(n as u64, LEN - n));
                Ok(())
            });
        )*};
    }
    check!(nothing flush read_nothing seek_before_the_start read_some);
}

/// A size that no memory suffices for.
#[test]
fn a_sparse_file_of_terabytes_is_not_read() {
    let mount = mounted!(Filesystem::Ext4);
    let path = mount.path().join("sparse");
    fs::File::create(&path).unwrap().set_len(8 << 40).unwrap();
    let opened = OpenOptions::new().read(true).clone();
    let opened = pollster::block_on(opened.open_and_read(&path, u64::MAX)).unwrap();
    assert_eq!((opened.metadata.len(), opened.contents), (8 << 40, None));
}

/// A future that waits for a worker ends in a forked child, which has no workers.
#[test]
fn a_future_is_refused_in_a_forked_child() {
    alone(|| {
        let dir = scratch();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        let runtime = ::tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        let _inside = runtime.enter();
        let mut open = Box::pin(File::open_and_read(&fifo, LIMIT));
        let mut poll = || {
            let mut context = Context::from_waker(Waker::noop());
            open.as_mut().poll(&mut context)
        };
        assert!(poll().is_pending());
        forked("a child", || match poll() {
            Poll::Ready(opened) => drop(opened.unwrap_err()),
            Poll::Pending => panic!("it would never end"),
        });
        let _writer = fs::File::options().write(true).open(&fifo).unwrap();
        let (_, metadata) = runtime.block_on(open).unwrap();
        assert!(!metadata.is_file());
    });
}

/// Another holder of the open file has moved the position.
#[test]
fn a_position_that_was_moved_is_kept() {
    run(async {
        let file = Uncached::new(LEN);
        let mut opened = opened(&file, LIMIT, true).await?;
        rustix::fs::seek(opened.as_fd(), rustix::fs::SeekFrom::Start(100))?;
        assert_eq!(rest(&mut opened).await?, pattern(100, LEN - 100));
        Ok(())
    });
}

#[test]
fn a_forked_child_reads_each_byte_once() {
    alone(|| {
        let file = Uncached::new(LEN);
        let mut opened = run(opened(&file, LIMIT, true));
        forked("a child", || {
            assert_eq!(run(rest(&mut opened)), pattern(0, LEN));
        });
        // The child has moved the position.
        assert_eq!(run(rest(&mut opened)), []);
    });
}

#[test]
fn other_types_are_opened_and_not_read() {
    run(async {
        let (_, metadata) = File::open_and_read("/proc/self/fd", LIMIT).await?;
        assert!(metadata.is_dir());
        let (mut null, metadata) = File::open_and_read("/dev/null", LIMIT).await?;
        assert!(!metadata.is_file());
        assert_eq!(rest(&mut null).await?, []);
        let missing = File::open_and_read("/nonexistent", LIMIT).await;
        assert_eq!(missing.unwrap_err().raw_os_error(), Some(libc::ENOENT));
        Ok(())
    });
}

/// The same by [`OpenOptions`]: opened by the calling thread, and by a worker.
fn of_library(path: &Path, change: fn(&mut OpenOptions) -> &mut OpenOptions) -> OpenedFile {
    let mut options = OpenOptions::new();
    change(options.read(true));
    pollster::block_on(options.open_and_read(path, LIMIT)).unwrap()
}

#[test]
fn contents_are_read_by_workers_alone() {
    let mount = mounted!(Filesystem::Ext4);
    let path = patterned(mount.path(), "file", LEN);
    // The filesystem becomes known.
    let first = of_library(&path, |options| options);
    assert_eq!(first.contents, Some(pattern(0, LEN)));
    for _ in 0..1000 {
        let second = of_library(&path, |options| options);
        assert_eq!(second.metadata.len(), LEN as u64);
        if second.contents.is_none() {
            let mut bytes = vec![0; LEN];
            second.file.blocking_read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes, pattern(0, LEN));
            return;
        }
    }
    panic!("the path was never cached");
}

#[test]
fn files_of_other_options_are_not_read() {
    let file = Uncached::new(LEN);
    let read = |change| of_library(&file.by_worker, change).contents;
    assert_eq!(read(|options| options), Some(pattern(0, LEN)));
    assert_eq!(read(|options| options.regular(true)), Some(pattern(0, LEN)));
    assert_eq!(read(|options| options.keep_cache(true)), None);
    assert_eq!(read(|options| options.direct(true)), None);
    let empty = Uncached::new(0);
    let contents = of_library(&empty.by_worker, |options| options).contents;
    assert_eq!(contents, Some(Vec::new()));
}
