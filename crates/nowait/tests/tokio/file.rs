//! The behaviours of `tokio::fs`, one by one: each test runs on `tokio::fs` (`theirs`) and on `nowait::tokio`
//! (`ours`).

use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::task::Poll;

use ::tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use futures_util::future::poll_fn;

/// A directory with a file of these bytes.
fn with(bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    (dir, path)
}

fn evict(path: &std::path::Path) {
    slowdisk::evict(&std::fs::File::open(path).unwrap()).unwrap();
}

/// Pseudorandom bytes that are the same in every run.
fn noise(len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

macro_rules! behaviours {
    ($face:ident, $fs:path) => {
        mod $face {
            use $fs as fs;

            use super::*;

            #[tokio::test]
            async fn a_file_is_read_to_its_end() {
                let bytes = noise(300_001);
                let (_dir, path) = with(&bytes);
                for cold in [false, true] {
                    if cold {
                        evict(&path);
                    }
                    let mut file = fs::File::open(&path).await.unwrap();
                    let mut got = Vec::new();
                    assert_eq!(file.read_to_end(&mut got).await.unwrap(), bytes.len());
                    assert!(got == bytes);
                    assert_eq!(file.read(&mut [0; 8]).await.unwrap(), 0, "the end stays");
                }
            }

            #[tokio::test]
            async fn small_reads_follow_each_other() {
                let bytes = noise(10_000);
                let (_dir, path) = with(&bytes);
                evict(&path);
                let mut file = fs::File::open(&path).await.unwrap();
                let mut got = Vec::new();
                let mut piece = [0; 77];
                loop {
                    match file.read(&mut piece).await.unwrap() {
                        0 => break,
                        n => got.extend_from_slice(&piece[..n]),
                    }
                }
                assert!(got == bytes);
            }

            #[tokio::test]
            async fn what_was_written_is_there_after_flush() {
                let (_dir, path) = with(b"");
                let mut file = fs::File::create(&path).await.unwrap();
                let bytes = noise(5_000_000);
                file.write_all(&bytes).await.unwrap();
                file.flush().await.unwrap();
                assert!(std::fs::read(&path).unwrap() == bytes);
            }

            #[tokio::test]
            async fn shutdown_flushes() {
                let (_dir, path) = with(b"");
                let mut file = fs::File::create(&path).await.unwrap();
                file.write_all(b"hello").await.unwrap();
                file.shutdown().await.unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), b"hello");
            }

            #[tokio::test]
            async fn sync_waits_for_what_was_written() {
                let (_dir, path) = with(b"");
                let mut file = fs::File::create(&path).await.unwrap();
                file.write_all(b"hello").await.unwrap();
                file.sync_all().await.unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), b"hello");
                file.write_all(b" again").await.unwrap();
                file.sync_data().await.unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), b"hello again");
            }

            #[tokio::test]
            async fn slices_are_written_in_order() {
                let (_dir, path) = with(b"");
                let mut file = fs::File::create(&path).await.unwrap();
                let slices = [
                    io::IoSlice::new(b""),
                    io::IoSlice::new(b"hello"),
                    io::IoSlice::new(b" "),
                    io::IoSlice::new(b"world"),
                ];
                let n = file.write_vectored(&slices).await.unwrap();
                assert!(n > 0);
                file.flush().await.unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), b"hello world"[..n]);
                assert!(::tokio::io::AsyncWrite::is_write_vectored(&file));
            }

            #[tokio::test]
            async fn nothing_is_read_into_no_room_and_nothing_written_of_none() {
                let (_dir, path) = with(b"hello");
                let mut options = fs::OpenOptions::new();
                let mut file = options.read(true).write(true).open(&path).await.unwrap();
                assert_eq!(file.read(&mut []).await.unwrap(), 0);
                assert_eq!(file.write(&[]).await.unwrap(), 0);
                file.flush().await.unwrap();
                let mut got = String::new();
                file.read_to_string(&mut got).await.unwrap();
                assert_eq!(got, "hello");
            }

            #[tokio::test]
            async fn seeks_move_the_position() {
                let (_dir, path) = with(b"0123456789");
                let mut file = fs::File::open(&path).await.unwrap();
                let mut two = [0; 2];
                for (to, at, want) in [
                    (SeekFrom::Start(4), 4, b"45"),
                    (SeekFrom::Current(1), 7, b"78"),
                    (SeekFrom::Current(-3), 6, b"67"),
                    (SeekFrom::End(-2), 8, b"89"),
                    (SeekFrom::End(-10), 0, b"01"),
                ] {
                    assert_eq!(file.seek(to).await.unwrap(), at);
                    file.read_exact(&mut two).await.unwrap();
                    assert_eq!(&two, want);
                    assert_eq!(file.stream_position().await.unwrap(), at + 2);
                }
                assert_eq!(file.seek(SeekFrom::End(5)).await.unwrap(), 15);
                assert_eq!(file.read(&mut two).await.unwrap(), 0, "beyond the end");
            }

            #[tokio::test]
            async fn a_seek_that_leads_nowhere_moves_nothing() {
                let (_dir, path) = with(b"0123456789");
                let mut file = fs::File::open(&path).await.unwrap();
                file.seek(SeekFrom::Start(3)).await.unwrap();
                for to in [
                    SeekFrom::Current(-4),
                    SeekFrom::End(-11),
                    SeekFrom::Start(u64::MAX),
                    SeekFrom::Current(i64::MIN),
                    SeekFrom::Current(i64::MAX),
                    SeekFrom::End(i64::MIN),
                ] {
                    let error = file.seek(to).await.unwrap_err();
                    assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{to:?}: {error}");
                }
                let mut one = [0; 1];
                file.read_exact(&mut one).await.unwrap();
                assert_eq!(&one, b"3");
            }

            #[tokio::test]
            async fn a_seek_that_was_not_awaited_counts() {
                let (_dir, path) = with(b"0123456789");
                let mut options = fs::OpenOptions::new();
                let mut file = options.read(true).write(true).open(&path).await.unwrap();
                use ::tokio::io::AsyncSeek;
                Pin::new(&mut file).start_seek(SeekFrom::Start(5)).unwrap();
                let mut one = [0; 1];
                file.read_exact(&mut one).await.unwrap();
                assert_eq!(&one, b"5");
                Pin::new(&mut file).start_seek(SeekFrom::Start(1)).unwrap();
                file.write_all(b"x").await.unwrap();
                file.flush().await.unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), b"0x23456789");
            }

            #[tokio::test]
            async fn a_seek_does_not_begin_while_something_is_on_its_way() {
                use ::tokio::io::AsyncSeek;
                let (_dir, path) = with(b"0123456789");
                let mut options = fs::OpenOptions::new();
                let mut file = options.read(true).write(true).open(&path).await.unwrap();
                Pin::new(&mut file).start_seek(SeekFrom::Start(5)).unwrap();
                let again = Pin::new(&mut file).start_seek(SeekFrom::Start(6));
                assert_eq!(again.unwrap_err().kind(), io::ErrorKind::Other);
                let at = poll_fn(|cx| Pin::new(&mut file).poll_complete(cx)).await;
                assert_eq!(at.unwrap(), 5);
            }

            #[tokio::test]
            async fn reads_and_writes_share_one_position() {
                let (_dir, path) = with(b"0123456789");
                let mut options = fs::OpenOptions::new();
                let mut file = options.read(true).write(true).open(&path).await.unwrap();
                let mut three = [0; 3];
                file.read_exact(&mut three).await.unwrap();
                file.write_all(b"ab").await.unwrap();
                file.read_exact(&mut three).await.unwrap();
                assert_eq!(&three, b"567");
                file.flush().await.unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), b"012ab56789");
            }

            #[tokio::test]
            async fn a_read_that_was_given_up_loses_nothing() {
                let bytes = noise(1 << 20);
                let (_dir, path) = with(&bytes);
                for round in 0..20 {
                    evict(&path);
                    let mut file = fs::File::open(&path).await.unwrap();
                    let mut got = Vec::new();
                    while got.len() < bytes.len() {
                        let mut large = vec![0; 8192];
                        // One poll. A future that is not ready is dropped.
                        let mut read = std::pin::pin!(file.read(&mut large));
                        let polled = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
                        if let Poll::Ready(n) = polled {
                            got.extend_from_slice(&large[..n.unwrap()]);
                        } else {
                            // Then a read with a buffer of another size.
                            let mut small = vec![0; 100 + round];
                            let n = file.read(&mut small).await.unwrap();
                            got.extend_from_slice(&small[..n]);
                        }
                    }
                    assert!(got == bytes);
                }
            }

            #[tokio::test]
            async fn what_was_read_too_far_is_read_again_after_a_seek_and_a_write() {
                let bytes = noise(1 << 16);
                let (_dir, path) = with(&bytes);
                evict(&path);
                let mut options = fs::OpenOptions::new();
                let mut file = options.read(true).write(true).open(&path).await.unwrap();
                {
                    let mut large = vec![0; 8192];
                    let mut read = std::pin::pin!(file.read(&mut large));
                    let _ = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
                }
                file.seek(SeekFrom::Start(10)).await.unwrap();
                let mut ten = [0; 10];
                file.read_exact(&mut ten).await.unwrap();
                assert_eq!(ten, bytes[10..20]);
                file.write_all(b"#").await.unwrap();
                file.seek(SeekFrom::Current(-2)).await.unwrap();
                file.read_exact(&mut ten).await.unwrap();
                assert_eq!(ten[..3], [bytes[19], b'#', bytes[21]]);
            }

            #[tokio::test]
            async fn the_position_is_behind_what_was_read_too_far() {
                let bytes = noise(1 << 20);
                let (_dir, path) = with(&bytes);
                let mut file = fs::File::open(&path).await.unwrap();
                let mut clone = file.try_clone().await.unwrap();
                // A fast disk may make the read ready at once.
                loop {
                    // Without cooperative budget a poll is pending and begins no read.
                    ::tokio::task::yield_now().await;
                    evict(&path);
                    let mut large = vec![0; 100_000];
                    let given_up = {
                        let mut read = std::pin::pin!(file.read(&mut large));
                        poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_pending())).await
                    };
                    if given_up {
                        break;
                    }
                    file.rewind().await.unwrap();
                }
                let mut ten = [0; 10];
                file.read_exact(&mut ten).await.unwrap();
                assert_eq!(ten, bytes[..10]);
                assert_eq!(clone.stream_position().await.unwrap(), 100_000);
                clone.read_exact(&mut ten).await.unwrap();
                assert_eq!(ten, bytes[100_000..100_010]);
                file.read_exact(&mut ten).await.unwrap();
                assert_eq!(ten, bytes[10..20]);
                assert_eq!(file.stream_position().await.unwrap(), 30);
                file.read_exact(&mut ten).await.unwrap();
                assert_eq!(ten, bytes[30..40]);
            }

            #[tokio::test]
            async fn clones_share_the_position() {
                let (_dir, path) = with(b"0123456789");
                let mut options = fs::OpenOptions::new();
                let mut a = options.read(true).write(true).open(&path).await.unwrap();
                let mut b = a.try_clone().await.unwrap();
                let mut two = [0; 2];
                a.read_exact(&mut two).await.unwrap();
                b.read_exact(&mut two).await.unwrap();
                assert_eq!(&two, b"23");
                b.seek(SeekFrom::Start(8)).await.unwrap();
                a.write_all(b"xyz").await.unwrap();
                a.flush().await.unwrap();
                assert_eq!(b.stream_position().await.unwrap(), 11);
                drop(a);
                b.rewind().await.unwrap();
                let mut all = String::new();
                b.read_to_string(&mut all).await.unwrap();
                assert_eq!(all, "01234567xyz");
            }

            #[tokio::test]
            async fn clones_that_read_at_once_share_the_bytes_out() {
                let bytes = noise(200_000);
                let (_dir, path) = with(&bytes);
                evict(&path);
                let first = fs::File::open(&path).await.unwrap();
                let mut readers = Vec::new();
                for _ in 0..4 {
                    let mut file = first.try_clone().await.unwrap();
                    readers.push(::tokio::spawn(async move {
                        let mut sum = 0u64;
                        let mut count = 0;
                        let mut piece = [0; 1000];
                        loop {
                            match file.read(&mut piece).await.unwrap() {
                                0 => return (sum, count),
                                n => {
                                    sum += piece[..n].iter().map(|b| u64::from(*b)).sum::<u64>();
                                    count += n;
                                }
                            }
                        }
                    }));
                }
                let mut total = (0, 0);
                for reader in readers {
                    let (sum, count) = reader.await.unwrap();
                    total = (total.0 + sum, total.1 + count);
                }
                let sum = bytes.iter().map(|b| u64::from(*b)).sum::<u64>();
                assert_eq!(total, (sum, bytes.len()));
            }

            #[tokio::test]
            async fn appended_bytes_go_to_the_end_and_so_does_the_position() {
                let (_dir, path) = with(b"first\n");
                let mut options = fs::OpenOptions::new();
                let mut a = options.read(true).append(true).open(&path).await.unwrap();
                let mut b = options.open(&path).await.unwrap();
                let mut three = [0; 3];
                a.read_exact(&mut three).await.unwrap();
                a.write_all(b"second\n").await.unwrap();
                a.flush().await.unwrap();
                b.write_all(b"third\n").await.unwrap();
                b.flush().await.unwrap();
                assert_eq!(a.stream_position().await.unwrap(), 13);
                let mut rest = String::new();
                a.read_to_string(&mut rest).await.unwrap();
                assert_eq!(rest, "third\n");
                assert_eq!(std::fs::read(&path).unwrap(), b"first\nsecond\nthird\n");
            }

            #[tokio::test]
            async fn a_write_that_fails_is_told_of_by_what_comes_next() {
                let (_dir, path) = with(b"0123");
                let mut file = fs::File::open(&path).await.unwrap();
                let accepted = file.write(b"no").await;
                assert_eq!(accepted.unwrap(), 2, "it is reported later");
                let error = file.flush().await.unwrap_err();
                assert_ne!(error.kind(), io::ErrorKind::WriteZero);
                file.flush().await.unwrap();

                file.write_all(b"no").await.unwrap();
                assert!(file.write(b"no").await.is_err());

                file.write_all(b"no").await.unwrap();
                file.sync_all().await.unwrap();
                assert!(
                    file.flush().await.is_err(),
                    "a sync keeps it for the writer"
                );

                file.write_all(b"no").await.unwrap();
                let mut two = [0; 2];
                file.read_exact(&mut two).await.unwrap();
                assert!(file.flush().await.is_err(), "and so does a read");

                file.write_all(b"no").await.unwrap();
                file.seek(SeekFrom::Start(1)).await.unwrap();
                assert!(file.flush().await.is_err(), "and a seek");
            }

            #[tokio::test]
            async fn a_read_of_what_may_only_be_written_fails() {
                let (_dir, path) = with(b"0123");
                let mut file = fs::OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .await
                    .unwrap();
                assert!(file.read(&mut [0; 2]).await.is_err());
                file.write_all(b"ab").await.unwrap();
                file.flush().await.unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), b"ab23");
            }

            #[tokio::test]
            async fn a_directory_can_be_opened_and_not_read() {
                let (dir, _path) = with(b"");
                let mut file = fs::File::open(dir.path()).await.unwrap();
                let error = file.read(&mut [0; 2]).await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
                assert!(file.metadata().await.unwrap().is_dir());
            }

            #[tokio::test]
            async fn size_bits_and_times_can_be_changed() {
                use std::os::unix::fs::PermissionsExt;
                let (_dir, path) = with(b"0123456789");
                let mut options = fs::OpenOptions::new();
                let mut file = options.read(true).write(true).open(&path).await.unwrap();
                file.seek(SeekFrom::Start(4)).await.unwrap();
                file.set_len(6).await.unwrap();
                let mut rest = Vec::new();
                file.read_to_end(&mut rest).await.unwrap();
                assert_eq!(rest, b"45");
                file.set_len(8).await.unwrap();
                rest.clear();
                file.read_to_end(&mut rest).await.unwrap();
                assert_eq!(rest, b"\0\0");

                let mut bits = file.metadata().await.unwrap().permissions();
                bits.set_mode(0o640);
                file.set_permissions(bits).await.unwrap();
                let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
                file.set_modified(then).await.unwrap();
                let metadata = file.metadata().await.unwrap();
                assert_eq!(metadata.len(), 8);
                assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
                assert_eq!(metadata.modified().unwrap(), then);
            }

            #[tokio::test]
            async fn the_standard_librarys_file_keeps_its_position() {
                use std::io::{Read, Seek};
                let (_dir, path) = with(b"0123456789");
                let mut std = std::fs::File::open(&path).unwrap();
                std.read_exact(&mut [0; 3]).unwrap();
                let mut file = fs::File::from_std(std);
                let mut two = [0; 2];
                file.read_exact(&mut two).await.unwrap();
                assert_eq!(&two, b"34");
                let mut std = file.into_std().await;
                assert_eq!(std.stream_position().unwrap(), 5);
                std.read_exact(&mut two).unwrap();
                assert_eq!(&two, b"56");
                let std = fs::File::from(std).try_into_std().unwrap();
                assert_eq!((&std).stream_position().unwrap(), 7);
            }

            #[tokio::test]
            async fn into_std_waits_for_what_was_written() {
                let (_dir, path) = with(b"");
                for n in 0..50u32 {
                    let mut file = fs::File::create(&path).await.unwrap();
                    let bytes = noise(100_000 + n as usize);
                    file.write_all(&bytes).await.unwrap();
                    let std = file.into_std().await;
                    assert_eq!(std.metadata().unwrap().len(), bytes.len() as u64);
                }
            }

            #[tokio::test]
            async fn options_say_what_std_says() {
                let (dir, path) = with(b"0123");
                let new = dir.path().join("new");
                let kind = |r: io::Result<fs::File>| r.err().map(|e| e.kind());
                let options = |set: &dyn Fn(&mut fs::OpenOptions)| {
                    let mut options = fs::OpenOptions::new();
                    set(&mut options);
                    options
                };
                let none = options(&|_| ());
                assert_eq!(
                    kind(none.open(&path).await),
                    Some(io::ErrorKind::InvalidInput)
                );
                let create = options(&|o| {
                    o.read(true).create(true);
                });
                assert_eq!(
                    kind(create.open(&new).await),
                    Some(io::ErrorKind::InvalidInput)
                );
                let missing = options(&|o| {
                    o.read(true);
                });
                assert_eq!(
                    kind(missing.open(&new).await),
                    Some(io::ErrorKind::NotFound)
                );
                let nul = missing.open("a\0b").await;
                assert_eq!(kind(nul), Some(io::ErrorKind::InvalidInput));
                let twice = options(&|o| {
                    o.write(true).create_new(true);
                });
                assert_eq!(kind(twice.open(&new).await), None);
                assert_eq!(
                    kind(twice.open(&new).await),
                    Some(io::ErrorKind::AlreadyExists)
                );
                assert_eq!(
                    kind(fs::File::create_new(&new).await),
                    Some(io::ErrorKind::AlreadyExists)
                );
                let bits = options(&|o| {
                    o.write(true).create(true).mode(0o600);
                });
                use std::os::unix::fs::PermissionsExt;
                let made = bits.open(dir.path().join("mode")).await.unwrap();
                let mode = made.metadata().await.unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
                let truncate = options(&|o| {
                    o.write(true).truncate(true);
                });
                truncate.open(&path).await.unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), b"");
            }

            #[tokio::test]
            async fn a_name_with_a_nul_names_no_directory() {
                let error = fs::read_dir("a\0b").await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            }

            #[tokio::test]
            async fn an_entry_is_of_the_directory_that_was_read() {
                let (dir, _path) = with(b"hello");
                let (before, after) = (dir.path().join("before"), dir.path().join("after"));
                std::fs::create_dir(&before).unwrap();
                std::fs::write(before.join("file"), b"hello").unwrap();
                std::os::unix::fs::symlink("file", before.join("link")).unwrap();
                let mut entries = fs::read_dir(&before).await.unwrap();
                let mut found = Vec::new();
                while let Some(entry) = entries.next_entry().await.unwrap() {
                    found.push(entry);
                }
                drop(entries);
                std::fs::rename(&before, &after).unwrap();
                // Another file of that name.
                std::fs::create_dir(&before).unwrap();
                std::fs::write(before.join("file"), b"others").unwrap();
                assert_eq!(found.len(), 2);
                for entry in found {
                    let link = entry.file_name() == "link";
                    let metadata = entry.metadata().await.unwrap();
                    assert_eq!(metadata.is_symlink(), link);
                    assert_eq!(entry.file_type().await.unwrap().is_symlink(), link);
                    assert_eq!(entry.path(), before.join(entry.file_name()));
                    if !link {
                        assert_eq!(metadata.len(), 5);
                    }
                    std::fs::remove_file(after.join(entry.file_name())).unwrap();
                    let gone = entry.metadata().await.unwrap_err();
                    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
                }
            }

            #[tokio::test]
            #[should_panic(expected = "`max_buf_size` must be greater than 0")]
            async fn a_buffer_of_no_size_is_none() {
                let (_dir, path) = with(b"");
                fs::File::open(&path).await.unwrap().set_max_buf_size(0);
            }

            #[tokio::test]
            async fn a_fifo_is_a_stream() {
                let (dir, _path) = with(b"");
                let fifo = dir.path().join("fifo");
                rustix::fs::mknodat(
                    rustix::fs::CWD,
                    &fifo,
                    rustix::fs::FileType::Fifo,
                    0o600.into(),
                    0,
                )
                .unwrap();
                // Both ends, so that neither open waits.
                let mut options = fs::OpenOptions::new();
                let mut to = options.read(true).write(true).open(&fifo).await.unwrap();
                let mut from = fs::File::open(&fifo).await.unwrap();
                assert!(from.seek(SeekFrom::Start(0)).await.is_err());
                let reader = ::tokio::spawn(async move {
                    let mut got = [0; 10];
                    from.read_exact(&mut got).await.unwrap();
                    got
                });
                to.write_all(b"01234").await.unwrap();
                to.flush().await.unwrap();
                to.write_all(b"56789").await.unwrap();
                to.flush().await.unwrap();
                assert_eq!(&reader.await.unwrap(), b"0123456789");
            }

            #[tokio::test]
            async fn a_read_of_a_fifo_that_was_given_up_loses_nothing() {
                let (dir, _path) = with(b"");
                let fifo = dir.path().join("fifo");
                let kind = rustix::fs::FileType::Fifo;
                rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, 0o600.into(), 0).unwrap();
                let mut options = fs::OpenOptions::new();
                let mut to = options.read(true).write(true).open(&fifo).await.unwrap();
                let mut from = fs::File::open(&fifo).await.unwrap();
                let bytes = noise(1000);
                for _ in 0..10 {
                    {
                        let mut large = [0; 500];
                        let mut read = std::pin::pin!(from.read(&mut large));
                        assert!(
                            poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_pending())).await
                        );
                    }
                    to.write_all(&bytes).await.unwrap();
                    to.flush().await.unwrap();
                    let mut got = Vec::new();
                    while got.len() < 1000 {
                        let mut small = [0; 30];
                        let room = small.len().min(1000 - got.len());
                        let n = from.read(&mut small[..room]).await.unwrap();
                        got.extend_from_slice(&small[..n]);
                    }
                    assert!(got == bytes);
                }
            }

            #[tokio::test]
            async fn a_block_device_is_a_file_with_a_position() {
                if let Err(missing) = slowdisk::available() {
                    return slowdisk::skip_or_fail(missing);
                }
                let bytes = noise(1 << 20);
                let (_dir, path) = with(&bytes);
                let device = slowdisk::LoopDevice::attach(&path).unwrap();
                let mut options = fs::OpenOptions::new();
                let opened = options.read(true).write(true).open(device.path()).await;
                let mut file = opened.unwrap();
                let mut at = 0;
                for round in 0..20usize {
                    {
                        // A dropped read has read too far.
                        let mut large = vec![0; 8192];
                        let mut read = std::pin::pin!(file.read(&mut large));
                        let polled = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
                        if let Poll::Ready(n) = polled {
                            at += n.unwrap();
                        }
                    }
                    let mut ten = [0; 10];
                    file.read_exact(&mut ten).await.unwrap();
                    assert_eq!(ten, bytes[at..at + 10], "round {round}");
                    at += 10;
                    match round % 4 {
                        0 => {
                            let seek = file.seek(SeekFrom::Current(-5)).await;
                            assert_eq!(seek.unwrap(), at as u64 - 5);
                            at -= 5;
                        }
                        1 => {
                            at = 50_000 + round;
                            file.seek(SeekFrom::Start(at as u64)).await.unwrap();
                        }
                        2 => {
                            // The same bytes at the position of the reads.
                            file.write_all(&bytes[at..at + 7]).await.unwrap();
                            at += 7;
                        }
                        _ => {}
                    }
                }
                file.sync_all().await.unwrap();
                let size = file.seek(SeekFrom::End(0)).await.unwrap();
                assert_eq!(size, 1 << 20);
                file.rewind().await.unwrap();
                let mut all = Vec::new();
                file.read_to_end(&mut all).await.unwrap();
                assert!(all == bytes);
            }

            #[tokio::test]
            async fn devices_and_the_kernels_own_files_are_read() {
                let mut zero = fs::File::open("/dev/zero").await.unwrap();
                let mut ten = [1; 10];
                zero.read_exact(&mut ten).await.unwrap();
                assert_eq!(ten, [0; 10]);
                let mut null = fs::File::create("/dev/null").await.unwrap();
                null.write_all(b"gone").await.unwrap();
                null.flush().await.unwrap();
                let mut status = String::new();
                let mut file = fs::File::open("/proc/self/status").await.unwrap();
                file.read_to_string(&mut status).await.unwrap();
                assert!(status.contains("VmRSS"), "{status}");
            }

            #[tokio::test]
            async fn one_write_takes_no_more_than_its_buffer() {
                let (_dir, path) = with(b"");
                let mut file = fs::File::create(&path).await.unwrap();
                file.set_max_buf_size(1000);
                assert_eq!(file.max_buf_size(), 1000);
                assert_eq!(file.write(&noise(5000)).await.unwrap(), 1000);
                file.flush().await.unwrap();
                let mut file = fs::File::open(&path).await.unwrap();
                file.set_max_buf_size(300);
                assert_eq!(file.read(&mut [0; 5000]).await.unwrap(), 300);
            }

            #[tokio::test]
            async fn functions_do_what_stds_do() {
                let (dir, path) = with(b"hello");
                let at = |name: &str| dir.path().join(name);
                assert_eq!(fs::read(&path).await.unwrap(), b"hello");
                assert_eq!(fs::read_to_string(&path).await.unwrap(), "hello");
                fs::write(at("b"), "other").await.unwrap();
                assert_eq!(fs::copy(at("b"), at("c")).await.unwrap(), 5);
                fs::rename(at("c"), at("d")).await.unwrap();
                fs::hard_link(at("d"), at("e")).await.unwrap();
                fs::symlink("e", at("f")).await.unwrap();
                assert_eq!(fs::read_link(at("f")).await.unwrap().to_str(), Some("e"));
                assert_eq!(
                    fs::canonicalize(at("f")).await.unwrap(),
                    at("e").canonicalize().unwrap()
                );
                assert!(fs::symlink_metadata(at("f")).await.unwrap().is_symlink());
                assert!(fs::metadata(at("f")).await.unwrap().is_file());
                fs::create_dir(at("g")).await.unwrap();
                fs::create_dir_all(at("g/h/i")).await.unwrap();
                assert!(fs::remove_dir(at("g")).await.is_err());
                fs::remove_dir(at("g/h/i")).await.unwrap();
                fs::remove_dir_all(at("g")).await.unwrap();
                assert!(!fs::try_exists(at("g")).await.unwrap());
                fs::remove_file(at("f")).await.unwrap();
                let mut bits = fs::metadata(at("e")).await.unwrap().permissions();
                bits.set_readonly(true);
                fs::set_permissions(at("e"), bits).await.unwrap();
                assert!(
                    fs::metadata(at("d"))
                        .await
                        .unwrap()
                        .permissions()
                        .readonly()
                );
                assert!(
                    fs::read(at("none"))
                        .await
                        .unwrap_err()
                        .raw_os_error()
                        .is_some()
                );
                assert!(
                    fs::read_to_string("/proc/self/exe").await.is_err(),
                    "not UTF-8"
                );
                let mut builder = fs::DirBuilder::new();
                builder.recursive(true).create(at("x/y")).await.unwrap();
                builder.recursive(true).create(at("x/y")).await.unwrap();
                assert!(fs::DirBuilder::new().create(at("x")).await.is_err());
            }

            #[tokio::test]
            async fn a_directory_is_listed() {
                let (dir, _path) = with(b"");
                for n in 0..1000 {
                    std::fs::write(dir.path().join(format!("f{n}")), b"").unwrap();
                }
                std::fs::create_dir(dir.path().join("d")).unwrap();
                std::os::unix::fs::symlink("d", dir.path().join("l")).unwrap();
                let mut entries = fs::read_dir(dir.path()).await.unwrap();
                let mut names = std::collections::BTreeSet::new();
                while let Some(entry) = entries.next_entry().await.unwrap() {
                    let name = entry.file_name().into_string().unwrap();
                    assert_eq!(entry.path(), dir.path().join(&name));
                    let kind = entry.file_type().await.unwrap();
                    assert_eq!(kind.is_dir(), name == "d");
                    assert_eq!(kind.is_symlink(), name == "l");
                    assert_eq!(kind.is_file(), name.starts_with('f'));
                    use std::os::unix::fs::MetadataExt;
                    assert_eq!(entry.metadata().await.unwrap().ino(), entry.ino());
                    assert!(names.insert(name));
                }
                assert_eq!(names.len(), 1003);
                let none = fs::read_dir(dir.path().join("none")).await.unwrap_err();
                assert_eq!(none.kind(), io::ErrorKind::NotFound);
                let file = fs::read_dir(dir.path().join("f0")).await.unwrap_err();
                assert_eq!(file.kind(), io::ErrorKind::NotADirectory);
            }

            #[test]
            fn readers_and_writers_let_other_tasks_run() {
                use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
                let runtime = ::tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                for write in [false, true] {
                    let (_dir, path) = with(&noise(4096));
                    runtime.block_on(async {
                        let state =
                            std::sync::Arc::new((AtomicBool::new(false), AtomicUsize::new(0)));
                        let told = state.clone();
                        let busy = ::tokio::spawn(async move {
                            let mut options = fs::OpenOptions::new();
                            let opened = options.read(true).write(true).open(&path).await;
                            let mut file = opened.unwrap();
                            while !told.0.load(SeqCst) {
                                file.rewind().await.unwrap();
                                if write {
                                    file.write_all(&[0; 4096]).await.unwrap();
                                } else {
                                    file.read_exact(&mut [0; 4096]).await.unwrap();
                                }
                                told.1.fetch_add(1, SeqCst);
                            }
                        });
                        while state.1.load(SeqCst) < 1000 {
                            ::tokio::task::yield_now().await;
                        }
                        state.0.store(true, SeqCst);
                        busy.await.unwrap();
                    });
                }
            }

            #[test]
            fn what_was_flushed_survives_its_runtime() {
                let (_dir, path) = with(b"");
                let bytes = noise(3_000_000);
                let runtime = ::tokio::runtime::Runtime::new().unwrap();
                let file = runtime.block_on(async {
                    let mut file = fs::File::create(&path).await.unwrap();
                    file.write_all(&bytes).await.unwrap();
                    file.flush().await.unwrap();
                    file
                });
                runtime.shutdown_background();
                assert!(std::fs::read(&path).unwrap() == bytes);
                // The file works in another runtime.
                ::tokio::runtime::Runtime::new().unwrap().block_on(async {
                    let mut file = file;
                    file.write_all(b"more").await.unwrap();
                    file.flush().await.unwrap();
                });
                assert_eq!(
                    std::fs::metadata(&path).unwrap().len(),
                    bytes.len() as u64 + 4
                );
            }

            #[test]
            fn tasks_on_a_local_set() {
                let (_dir, path) = with(&noise(100_000));
                evict(&path);
                let runtime = ::tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                let set = ::tokio::task::LocalSet::new();
                set.block_on(&runtime, async move {
                    let here = std::rc::Rc::new(path);
                    let mut tasks = Vec::new();
                    for _ in 0..10 {
                        let path = here.clone();
                        tasks.push(::tokio::task::spawn_local(async move {
                            let mut file = fs::File::open(&*path).await.unwrap();
                            let mut got = Vec::new();
                            file.read_to_end(&mut got).await.unwrap();
                            got.len()
                        }));
                    }
                    for task in tasks {
                        assert_eq!(task.await.unwrap(), 100_000);
                    }
                });
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn aborted_tasks_do_not_affect_others() {
                let bytes = noise(1 << 20);
                let (dir, path) = with(&bytes);
                for round in 0..60u64 {
                    evict(&path);
                    let (from, to) = (path.clone(), dir.path().join(format!("copy{}", round % 4)));
                    let task = ::tokio::spawn(async move {
                        let mut from = fs::File::open(&from).await.unwrap();
                        let mut to = fs::File::create(&to).await.unwrap();
                        ::tokio::io::copy(&mut from, &mut to).await.unwrap();
                        to.flush().await.unwrap();
                    });
                    ::tokio::time::sleep(std::time::Duration::from_micros(round * 50)).await;
                    task.abort();
                    let _ = task.await;
                }
                let mut file = fs::File::open(&path).await.unwrap();
                let mut got = Vec::new();
                file.read_to_end(&mut got).await.unwrap();
                assert!(got == bytes);
            }
        }
    };
}

behaviours!(theirs, ::tokio::fs);
behaviours!(ours, ::nowait::tokio);
