//! Replacing the `use` line is enough: one source text uses every function, method and trait of `tokio::fs`
//! with its types. It is built and run against `tokio::fs` and against `nowait::tokio`.
#![allow(unsafe_code, reason = "File::from_raw_fd")]

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, UNIX_EPOCH};

use ::tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt, AsyncWrite, AsyncWriteExt,
    BufReader, BufWriter,
};

fn of_any_thread<T: Send + Sync + Unpin + Debug + 'static>() {}
fn safe_to_unwind<T: UnwindSafe>() {}
fn safe_to_look_at<T: RefUnwindSafe>() {}
fn a_stream<T: AsyncRead + AsyncWrite + AsyncSeek>() {}
fn a_descriptor<T>()
where
    T: AsFd + AsRawFd + FromRawFd + From<OwnedFd> + From<std::fs::File>,
{
}
fn made_of_nothing<T: Default>() -> T {
    T::default()
}
fn sent<T: Send + Sync>(future: T) -> T {
    future
}

macro_rules! surface {
    ($face:ident, $fs:path) => {
        mod $face {
            use $fs as fs;

            use fs::{
                DirBuilder, DirEntry, File, FileTimes, OpenOptions, ReadDir, canonicalize, copy,
                create_dir, create_dir_all, hard_link, metadata, read, read_dir, read_link,
                read_to_string, remove_dir, remove_dir_all, remove_file, rename, set_permissions,
                symlink, symlink_metadata, try_exists, write,
            };

            use super::*;

            #[test]
            fn traits() {
                of_any_thread::<File>();
                of_any_thread::<OpenOptions>();
                of_any_thread::<DirBuilder>();
                of_any_thread::<DirEntry>();
                of_any_thread::<ReadDir>();
                of_any_thread::<FileTimes>();
                safe_to_unwind::<File>();
                safe_to_unwind::<OpenOptions>();
                safe_to_unwind::<DirBuilder>();
                safe_to_unwind::<DirEntry>();
                safe_to_look_at::<OpenOptions>();
                safe_to_look_at::<DirBuilder>();
                safe_to_look_at::<DirEntry>();
                a_stream::<File>();
                a_descriptor::<File>();
                let _: (OpenOptions, DirBuilder, FileTimes) =
                    (made_of_nothing(), made_of_nothing(), made_of_nothing());
                let _: OpenOptions = OpenOptions::from(std::fs::OpenOptions::new()).clone();
            }

            #[::tokio::test]
            async fn files() {
                let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
                let path: PathBuf = dir.path().join("file");
                let mut file: File = sent(File::create_new(&path)).await.unwrap();
                sent(file.write_all(b"0123456789\nabc\n")).await.unwrap();
                sent(file.flush()).await.unwrap();
                sent(file.sync_all()).await.unwrap();
                sent(file.sync_data()).await.unwrap();
                sent(file.set_len(12)).await.unwrap();
                let before: std::fs::Metadata = sent(file.metadata()).await.unwrap();
                assert_eq!(before.len(), 12);
                let mut bits: std::fs::Permissions = before.permissions();
                bits.set_readonly(true);
                sent(file.set_permissions(bits)).await.unwrap();
                let then = UNIX_EPOCH + Duration::from_secs(1_000_000);
                let times: FileTimes = FileTimes::new()
                    .set_accessed(then)
                    .set_modified(then + Duration::from_secs(1));
                sent(file.set_times(times.clone())).await.unwrap();
                let now = sent(file.metadata()).await.unwrap();
                assert_eq!(now.accessed().unwrap(), then);
                assert_eq!(now.modified().unwrap(), then + Duration::from_secs(1));
                sent(file.set_modified(then)).await.unwrap();
                sent(file.write(&[])).await.unwrap();
                sent(file.read(&mut [])).await.unwrap();
                sent(file.seek(io::SeekFrom::Start(0))).await.unwrap();
                sent(file.rewind()).await.unwrap();
                sent(file.stream_position()).await.unwrap();
                sent(file.shutdown()).await.unwrap();
                file.set_max_buf_size(1 << 16);
                let most: usize = file.max_buf_size();
                assert_eq!(most, 1 << 16);
                let clone: File = sent(file.try_clone()).await.unwrap();
                assert_eq!(clone.max_buf_size(), most);
                drop(clone);

                let borrowed: BorrowedFd<'_> = file.as_fd();
                let raw: RawFd = file.as_raw_fd();
                assert_eq!(borrowed.as_raw_fd(), raw);
                assert!(format!("{file:?}").contains("File"));
                let std: std::fs::File = sent(file.into_std()).await;
                let file: File = File::from_std(std);
                let tried: Result<std::fs::File, File> = file.try_into_std();
                // SAFETY: the number was just given up by its file.
                let file = unsafe { File::from_raw_fd(tried.unwrap().into_raw_fd()) };
                let std = file.into_std().await;
                let file = File::from(OwnedFd::from(std));
                let file = File::from(file.into_std().await);
                drop(file);

                let mut options: OpenOptions = File::options();
                options
                    .read(true)
                    .write(true)
                    .append(false)
                    .truncate(false)
                    .create(true)
                    .create_new(false)
                    .mode(0o644)
                    .custom_flags(libc::O_NOATIME);
                let opened: io::Result<File> = sent(options.open(&path)).await;
                let file = opened.unwrap();
                let mut lines = BufReader::new(file).lines();
                assert_eq!(lines.next_line().await.unwrap().unwrap(), "0123456789");
                let file = sent(File::create(&path)).await.unwrap();
                let mut writer = BufWriter::new(file);
                writer.write_all(b"hello").await.unwrap();
                writer.shutdown().await.unwrap();
                let (mut from, mut to) = (
                    sent(File::open(&path)).await.unwrap(),
                    File::create(dir.path().join("copy")).await.unwrap(),
                );
                let copied = sent(::tokio::io::copy(&mut from, &mut to)).await;
                assert_eq!(copied.unwrap(), 5);
                to.flush().await.unwrap();
                let (mut reads, writes) = ::tokio::io::split(File::open(&path).await.unwrap());
                drop(writes);
                let mut text = String::new();
                reads.read_to_string(&mut text).await.unwrap();
                assert_eq!(text, "hello");
                let mut pinned: Pin<Box<dyn AsyncSeek + Send>> =
                    Box::pin(File::open(&path).await.unwrap());
                assert_eq!(pinned.seek(io::SeekFrom::End(0)).await.unwrap(), 5);
            }

            #[::tokio::test]
            async fn functions() {
                let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
                let at = |name: &str| -> PathBuf { dir.path().join(name) };
                // Types of paths and of bytes.
                let _: io::Result<()> = sent(write(at("a"), b"hello")).await;
                let _: io::Result<()> = write(at("a").to_str().unwrap(), "hello").await;
                let _: io::Result<()> = write(&at("a"), vec![b'x'; 5]).await;
                let bytes: io::Result<Vec<u8>> = sent(read(at("a").as_path())).await;
                assert_eq!(bytes.unwrap(), b"xxxxx");
                let text: io::Result<String> = sent(read_to_string(at("a").as_os_str())).await;
                assert_eq!(text.unwrap(), "xxxxx");
                let copied: Result<u64, io::Error> = sent(copy(at("a"), at("b"))).await;
                assert_eq!(copied.unwrap(), 5);
                let _: io::Result<()> = sent(rename(at("b"), at("c"))).await;
                let _: io::Result<()> = sent(hard_link(at("c"), at("d"))).await;
                let _: io::Result<()> = sent(symlink("d", at("e"))).await;
                let leads: io::Result<PathBuf> = sent(read_link(at("e"))).await;
                assert_eq!(leads.unwrap(), Path::new("d"));
                let whole: io::Result<PathBuf> = sent(canonicalize(at("e"))).await;
                assert!(whole.unwrap().ends_with("d"));
                let there: io::Result<bool> = sent(try_exists(at("e"))).await;
                assert!(there.unwrap());
                let followed: io::Result<std::fs::Metadata> = sent(metadata(at("e"))).await;
                let itself: io::Result<std::fs::Metadata> = sent(symlink_metadata(at("e"))).await;
                assert!(itself.unwrap().is_symlink());
                let bits = followed.unwrap().permissions();
                let _: io::Result<()> = sent(set_permissions(at("d"), bits)).await;
                let _: io::Result<()> = sent(create_dir(at("f"))).await;
                let _: io::Result<()> = sent(create_dir_all(at("f/g/h"))).await;
                let _: io::Result<()> = sent(remove_dir(at("f/g/h"))).await;
                let _: io::Result<()> = sent(remove_dir_all(at("f"))).await;
                let _: io::Result<()> = sent(remove_file(at("e"))).await;
                let mut builder = DirBuilder::new();
                builder.recursive(true).mode(0o700);
                let made: io::Result<()> = sent(builder.create(at("i/j"))).await;
                made.unwrap();
                let mut left = std::fs::read_dir(dir.path())
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name())
                    .collect::<Vec<_>>();
                left.sort();
                assert_eq!(left, ["a", "c", "d", "i"]);
            }

            #[::tokio::test]
            async fn directories() {
                use std::os::unix::fs::{FileTypeExt, MetadataExt};
                let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
                let make = |name: &str, kind| {
                    let (at, dev) = (dir.path().join(name), rustix::fs::makedev(1, 3));
                    rustix::fs::mknodat(rustix::fs::CWD, at, kind, 0o600.into(), dev).unwrap();
                };
                make("fifo", rustix::fs::FileType::Fifo);
                make("socket", rustix::fs::FileType::Socket);
                make("char", rustix::fs::FileType::CharacterDevice);
                make("block", rustix::fs::FileType::BlockDevice);
                make("file", rustix::fs::FileType::RegularFile);
                make("file2", rustix::fs::FileType::RegularFile);
                create_dir(dir.path().join("dir")).await.unwrap();
                symlink("file", dir.path().join("link")).await.unwrap();
                for _ in 0..2 {
                    let mut entries: ReadDir = sent(read_dir(dir.path())).await.unwrap();
                    let first: io::Result<Option<DirEntry>> = sent(entries.next_entry()).await;
                    let mut next = first.unwrap();
                    let mut count = 0;
                    while let Some(entry) = next {
                        let name: OsString = entry.file_name();
                        let path: PathBuf = entry.path();
                        let ino: u64 = entry.ino();
                        let told: std::fs::Metadata = sent(entry.metadata()).await.unwrap();
                        let kind: std::fs::FileType = sent(entry.file_type()).await.unwrap();
                        assert_eq!(path, dir.path().join(&name));
                        assert_eq!(ino, told.ino());
                        assert_eq!(kind, told.file_type(), "{name:?}");
                        assert_eq!(kind.is_fifo(), name == "fifo");
                        assert_eq!(kind.is_socket(), name == "socket");
                        assert_eq!(kind.is_char_device(), name == "char");
                        assert_eq!(kind.is_block_device(), name == "block");
                        assert_eq!(kind.is_symlink(), name == "link");
                        assert_eq!(kind.is_dir(), name == "dir");
                        count += 1;
                        type Next = Poll<io::Result<Option<DirEntry>>>;
                        next = std::future::poll_fn(|cx: &mut Context<'_>| -> Next {
                            entries.poll_next_entry(cx)
                        })
                        .await
                        .unwrap();
                    }
                    assert_eq!(count, 8);
                }
            }
        }
    };
}

/// The futures that tokio's file does not have.
#[::tokio::test]
async fn reads_and_writes_at_offsets() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = nowait::tokio::File::create_new(dir.path().join("file")).await;
    let file = file.unwrap();
    sent(file.write_at(vec![1], 0)).await.result.unwrap();
    sent(file.write_all_at(vec![1], 0)).await.result.unwrap();
    sent(file.write_vectored_at(vec![vec![1]], 0))
        .await
        .result
        .unwrap();
    sent(file.read_at(vec![0], 0)).await.result.unwrap();
    sent(file.read_exact_at(vec![0], 0)).await.result.unwrap();
    sent(file.read_vectored_at(vec![vec![0]], 0))
        .await
        .result
        .unwrap();
}

surface!(theirs, ::tokio::fs);
surface!(ours, ::nowait::tokio);
