//! Each operation returns what its plain system call returns, on every engine, and gives back its buffers.
#![allow(unsafe_code, reason = "the plain system calls to compare with")]

use std::ffi::CString;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr::NonNull;

use nowait::buffer::{Buffer, UninitSlice};
use nowait::engine::{Options, Submit};
use nowait::op::{
    Advice, Fadvise, Fallocate, FallocateMode, Fsync, Kind, Nop, Op, Openat2, Read, Readv, Statx,
    Write, Writev,
};
use nowait::{Handle, IoBuf, IoBufMut, RwFlags, ServedBy, StatxMask};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

use crate::common::cache::evict;
use crate::common::completions::{finish, one, queued, said};
use crate::common::drive::{Drive, each, name};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::{handle, handle_rw, pipe};
use crate::common::kinds::{AnyKind, each_kind};
use crate::common::results::{bytes_of, nothing_for_a_while, one_in_batch, pieces_of, source_of};
use crate::common::wait::wait_until;

/// The result of a `libc` call in the form of [`said`].
pub fn plain(ret: isize) -> Result<usize, i32> {
    usize::try_from(ret).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap())
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn raw(handle: &Handle) -> i32 {
    handle.as_fd().as_raw_fd()
}

fn vec_of(room: usize) -> Buffer {
    Box::new(Vec::<u8>::with_capacity(room))
}

fn room(buffer: &Vec<u8>) -> usize {
    buffer.capacity()
}

/// A handle of each kind of file.
struct Kinds {
    dir: tempfile::TempDir,
    file: Handle,
    directory: Handle,
    write_only: Handle,
    path_only: Handle,
    pipe: Handle,
    socket: Handle,
    null: Handle,
    zero: Handle,
    /// The other ends of pipe and socket, which hold data to read.
    _ends: (OwnedFd, OwnedFd),
}

const SIZE: usize = 10_000;

impl Kinds {
    fn new(engine: &mut AnyKind) -> Kinds {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        let open = |path: &Path, flags| {
            Handle::new(rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap())
                .unwrap()
        };
        let (pipe, end) = pipe();
        rustix::io::write(&end, &[7; 100]).unwrap();
        let (socket, other) = std::os::unix::net::UnixStream::pair().unwrap();
        rustix::io::write(&other, &[7; 100]).unwrap();
        let mut known = |plain: Handle| engine.file(&plain);
        Kinds {
            file: known(open(&path, OFlags::RDWR)),
            directory: known(open(dir.path(), OFlags::RDONLY | OFlags::DIRECTORY)),
            write_only: known(open(&path, OFlags::WRONLY)),
            path_only: known(open(&path, OFlags::PATH)),
            pipe: known(pipe),
            socket: known(Handle::new(OwnedFd::from(socket)).unwrap()),
            null: known(open(Path::new("/dev/null"), OFlags::RDWR)),
            zero: known(open(Path::new("/dev/zero"), OFlags::RDWR)),
            _ends: (end, other.into()),
            dir,
        }
    }

    fn all(&self) -> [(&'static str, &Handle); 8] {
        [
            ("file", &self.file),
            ("directory", &self.directory),
            ("write-only", &self.write_only),
            ("O_PATH", &self.path_only),
            ("pipe", &self.pipe),
            ("socket", &self.socket),
            ("/dev/null", &self.null),
            ("/dev/zero", &self.zero),
        ]
    }
}

#[test]
fn read_says_what_pread_says() {
    each_kind(Options::new(), |engine| {
        let kinds = Kinds::new(engine);
        let offsets = [
            0,
            1,
            4096,
            SIZE as u64 - 1,
            SIZE as u64,
            SIZE as u64 + 1,
            1 << 40,
            i64::MAX as u64 - 100,
            i64::MAX as u64,
            1 << 63,
            u64::MAX - 1,
            u64::MAX,
        ];
        for (kind, handle) in kinds.all() {
            for offset in offsets {
                for len in [0usize, 1, 100, 5000, 20_000] {
                    if kind == "directory" && len == 0 {
                        // The ring says 0, the call EISDIR.
                        continue;
                    }
                    let mut want = vec![0; len];
                    // SAFETY: the vector has `len` bytes.
                    let plain = plain(unsafe {
                        libc::pread(raw(handle), want.as_mut_ptr().cast(), len, offset as i64)
                    });
                    for batch in [false, true] {
                        let what = format!("{}: {kind} {len}@{offset} {batch}", name(engine));
                        let op = Op::from(Read::new(handle, engine.buffer(len), offset))
                            .user_data(offset);
                        let done = if batch {
                            one_in_batch(engine, op)
                        } else {
                            one(engine, op)
                        };
                        // pread past the largest offset: the kernel shortens a file's read to
                        // what fits and says EINVAL elsewhere; here the range is refused.
                        let beyond = i64::try_from(offset)
                            .ok()
                            .and_then(|o| o.checked_add(len as i64))
                            .is_none();
                        if beyond {
                            assert!(done.result.is_err(), "{what}");
                        } else {
                            assert_eq!(said(&done), plain, "{what}");
                        }
                        assert_eq!(done.op.get_user_data(), offset, "{what}");
                        let got = bytes_of(done);
                        assert!(room(&got) >= len, "{what}");
                        let n = if beyond { 0 } else { plain.unwrap_or(0) };
                        assert_eq!(got, want[..n], "{what}");
                    }
                }
            }
        }
    });
}

#[test]
fn write_says_what_pwrite_says() {
    each_kind(Options::new(), |engine| {
        let kinds = Kinds::new(engine);
        for (kind, handle) in kinds.all() {
            for offset in [
                0,
                5,
                SIZE as u64 + 10_000,
                i64::MAX as u64,
                1 << 63,
                u64::MAX,
            ] {
                for len in [0usize, 1, 5000] {
                    let what = format!("{}: {kind} {len}@{offset}", name(engine));
                    let bytes = pattern(offset % 1000, len);
                    // SAFETY: the vector has `len` bytes.
                    let plain = plain(unsafe {
                        libc::pwrite(raw(handle), bytes.as_ptr().cast(), len, offset as i64)
                    });
                    let op = Write::new(handle, engine.source(bytes.clone()), offset);
                    let done = one(engine, Op::from(op).user_data(9));
                    let beyond = i64::try_from(offset)
                        .ok()
                        .and_then(|o| o.checked_add(len as i64))
                        .is_none();
                    if beyond {
                        assert!(done.result.is_err(), "{what}: {done:?}");
                    } else {
                        assert_eq!(said(&done), plain, "{what}");
                    }
                    assert_eq!(done.op.get_user_data(), 9, "{what}");
                    assert_eq!(source_of(done), bytes, "{what}");
                }
            }
        }
        let mut all = Vec::new();
        std::fs::File::open(kinds.dir.path().join("file"))
            .unwrap()
            .read_to_end(&mut all)
            .unwrap();
        assert_eq!(all.len(), SIZE + 15_000);
        assert_eq!(all[5..5005], pattern(5, 5000));
        assert_eq!(
            all[SIZE + 10_000..],
            pattern((SIZE as u64 + 10_000) % 1000, 5000)
        );
    });
}

#[test]
fn a_write_goes_where_it_was_sent_and_not_to_the_files_position() {
    each_kind(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 100);
        let mut file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        file.seek(std::io::SeekFrom::Start(50)).unwrap();
        let handle = Handle::new(file.try_clone().unwrap()).unwrap();
        // −1 would mean "the file's own position" to the ring.
        for offset in [u64::MAX, u64::MAX - 1, 1 << 63, i64::MAX as u64] {
            let ops: [Op; 3] = [
                Write::new(&handle, Box::new(vec![0u8; 10]), offset).into(),
                Writev::new(&handle, vec![Box::new(vec![0u8; 10])], offset).into(),
                Readv::new(&handle, vec![vec_of(10)], offset).into(),
            ];
            for op in ops {
                let done = one(engine, op);
                assert!(done.result.is_err(), "{}: {done:?}", name(engine));
            }
        }
        assert_eq!(
            std::fs::read(&path).unwrap(),
            pattern(0, 100),
            "{}",
            name(engine)
        );
        assert_eq!(file.stream_position().unwrap(), 50, "{}", name(engine));
    });
}

/// Lists of piece lengths.
fn lists() -> Vec<Vec<usize>> {
    vec![
        vec![],
        vec![0],
        vec![0, 0, 0],
        vec![100],
        vec![0, 100, 0, 1, 0],
        vec![4096, 0, 4096, 1, 9000],
        vec![7; 1024],
        vec![1; 1025],
        vec![5; 2100],
        [vec![0; 2000], vec![10; 3]].concat(),
    ]
}

/// The result of as many calls as a list needs: one call takes 1024 pieces.
fn in_calls(
    iov: &[libc::iovec],
    offset: u64,
    call: impl Fn(&[libc::iovec], u64) -> isize,
) -> Result<usize, i32> {
    let mut done = 0;
    for part in iov.chunks(1024) {
        let n = plain(call(part, offset + done as u64))?;
        done += n;
        if n < part.iter().map(|piece| piece.iov_len).sum() {
            break;
        }
    }
    if iov.is_empty() {
        return plain(call(iov, offset));
    }
    Ok(done)
}

#[test]
fn readv_says_what_preadv_says() {
    each_kind(Options::new(), |engine| {
        let kinds = Kinds::new(engine);
        for (kind, handle) in kinds.all() {
            for list in lists() {
                for offset in [0u64, 3, SIZE as u64 - 5, SIZE as u64] {
                    let what = format!("{}: {kind} {} pieces @{offset}", name(engine), list.len());
                    let mut want: Vec<Vec<u8>> = list.iter().map(|n| vec![0; *n]).collect();
                    let iov: Vec<_> = want
                        .iter_mut()
                        .map(|v| libc::iovec {
                            iov_base: v.as_mut_ptr().cast(),
                            iov_len: v.len(),
                        })
                        .collect();
                    // SAFETY: each iovec is one of the vectors.
                    let call = |part: &[libc::iovec], at: u64| unsafe {
                        libc::preadv(raw(handle), part.as_ptr(), part.len() as i32, at as i64)
                    };
                    let plain = in_calls(&iov, offset, call);
                    let buffers = list.iter().map(|n| vec_of(*n)).collect();
                    let done = one(engine, Readv::new(handle, buffers, offset));
                    assert_eq!(said(&done), plain, "{what}");
                    let n = plain.unwrap_or(0);
                    let got = pieces_of(done);
                    assert_eq!(got.len(), list.len(), "{what}");
                    assert_eq!(got.concat(), want.concat()[..n], "{what}");
                }
            }
        }
    });
}

#[test]
fn writev_says_what_pwritev_says() {
    each_kind(Options::new(), |engine| {
        let kinds = Kinds::new(engine);
        for (kind, handle) in kinds.all() {
            for list in lists() {
                let what = format!("{}: {kind} {} pieces", name(engine), list.len());
                let given: Vec<Vec<u8>> = list.iter().map(|n| pattern(0, *n)).collect();
                let iov: Vec<_> = given
                    .iter()
                    .map(|v| libc::iovec {
                        iov_base: v.as_ptr().cast_mut().cast(),
                        iov_len: v.len(),
                    })
                    .collect();
                // SAFETY: each iovec is one of the vectors.
                let call = |part: &[libc::iovec], at: u64| unsafe {
                    libc::pwritev(raw(handle), part.as_ptr(), part.len() as i32, at as i64)
                };
                let plain = in_calls(&iov, 3, call);
                let sources = given.iter().map(|v| Box::new(v.clone()) as _).collect();
                let done = one(engine, Writev::new(handle, sources, 3));
                assert_eq!(said(&done), plain, "{what}");
                let Kind::Writev(op) = done.op.into_kind() else {
                    panic!("{what}")
                };
                let back: Vec<Vec<u8>> = op
                    .into_sources()
                    .into_iter()
                    .map(|s| nowait::buffer::downcast_source(s).unwrap())
                    .collect();
                assert_eq!(back, given, "{what}");
            }
        }
    });
}

#[test]
fn a_stream_read_is_short_when_the_pipe_is() {
    each_kind(Options::new(), |engine| {
        let (reader, writer) = pipe();
        rustix::io::write(&writer, b"abc").unwrap();
        let done = one(engine, Read::stream(&reader, vec_of(100)));
        assert_eq!(said(&done), Ok(3), "{}", name(engine));
        assert_eq!(bytes_of(done), b"abc");

        rustix::io::write(&writer, b"defgh").unwrap();
        let done = one(
            engine,
            Readv::stream(&reader, vec![vec_of(2), vec_of(0), vec_of(100)]),
        );
        assert_eq!(said(&done), Ok(5), "{}", name(engine));
        assert_eq!(pieces_of(done), [&b"de"[..], b"", b"fgh"]);

        let ticket = queued(engine, Read::stream(&reader, vec_of(100)));
        nothing_for_a_while(engine);
        rustix::io::write(&writer, b"late").unwrap();
        let done = finish(engine, 1).remove(0);
        assert_eq!((done.ticket, said(&done)), (Some(ticket), Ok(4)));

        drop(writer);
        let done = one(engine, Read::stream(&reader, vec_of(100)));
        assert_eq!(said(&done), Ok(0), "{}: end of stream", name(engine));
    });
}

#[test]
fn stream_reads_and_writes_move_the_files_position() {
    each_kind(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 1000);
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let handle = Handle::new(file.try_clone().unwrap()).unwrap();
        let at = || (&file).stream_position().unwrap();
        let done = one(engine, Read::stream(&handle, vec_of(300)));
        // A ring does not lock the position.
        assert_eq!(done.provenance.served_by, ServedBy::Worker);
        assert_eq!(
            (bytes_of(done), at()),
            (pattern(0, 300), 300),
            "{}",
            name(engine)
        );
        let done = one(engine, Write::stream(&handle, Box::new(vec![9u8; 100])));
        assert_eq!((said(&done), at()), (Ok(100), 400), "{}", name(engine));
        let done = one(engine, Readv::stream(&handle, vec![vec_of(10), vec_of(90)]));
        assert_eq!(pieces_of(done).concat(), pattern(400, 100));
        let done = one(
            engine,
            Writev::stream(&handle, vec![Box::new("ab"), Box::new("cd")]),
        );
        assert_eq!((said(&done), at()), (Ok(4), 504), "{}", name(engine));
        let mut want = pattern(0, 1000);
        want[300..400].fill(9);
        want[500..504].copy_from_slice(b"abcd");
        assert_eq!(std::fs::read(&path).unwrap(), want, "{}", name(engine));
    });
}

#[test]
fn a_write_of_everything_goes_on_after_short_ones() {
    each_kind(Options::new(), |engine| {
        // A pipe holds 64 KiB, and the reader is slow.
        let (mut reader, writer) = std::io::pipe().unwrap();
        let given = pattern(0, 1 << 20);
        let handle = Handle::new(writer).unwrap();
        queued(
            engine,
            Write::stream(&handle, Box::new(given.clone())).all(),
        );
        let mut got = vec![0; given.len()];
        // A local engine goes on only while it is driven.
        let done = std::thread::scope(|s| {
            s.spawn(|| reader.read_exact(&mut got).unwrap());
            finish(engine, 1).remove(0)
        });
        assert_eq!(said(&done), Ok(given.len()), "{}", name(engine));
        assert!(got == given, "{}", name(engine));
        assert!(source_of(done) == given);
    });
}

#[test]
fn fsync_and_fdatasync_say_what_the_calls_say() {
    each_kind(Options::new(), |engine| {
        let kinds = Kinds::new(engine);
        for (kind, handle) in kinds.all() {
            let what = format!("{}: {kind}", name(engine));
            // SAFETY: no memory is involved.
            let sync = plain(unsafe { libc::fsync(raw(handle)) } as isize);
            assert_eq!(said(&one(engine, Fsync::new(handle))), sync, "{what}");
            // SAFETY: no memory is involved.
            let data = plain(unsafe { libc::fdatasync(raw(handle)) } as isize);
            assert_eq!(said(&one(engine, Fsync::data(handle))), data, "{what}");
        }
    });
}

#[test]
fn openat2_says_what_open_says() {
    each_kind(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 100);
        let loops = dir.path().join("loop");
        std::os::unix::fs::symlink(&loops, &loops).unwrap();
        let cases = [
            (path.clone(), OFlags::RDONLY),
            (path.clone(), OFlags::RDWR | OFlags::CREATE | OFlags::EXCL),
            (path.join("below"), OFlags::RDONLY),
            (dir.path().join("none"), OFlags::RDONLY),
            (
                dir.path().join("new"),
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
            ),
            (dir.path().to_owned(), OFlags::RDONLY),
            (dir.path().to_owned(), OFlags::WRONLY),
            (path.clone(), OFlags::RDONLY | OFlags::DIRECTORY),
            (loops, OFlags::RDONLY),
            (dir.path().join("n".repeat(300)), OFlags::RDONLY),
            ("".into(), OFlags::RDONLY),
            ("/proc/self/mem/x".into(), OFlags::RDONLY),
        ];
        for (path, flags) in cases {
            let what = format!("{}: {} {flags:?}", name(engine), path.display());
            let mode = Mode::from_raw_mode(0o640);
            let done = one(
                engine,
                Openat2::new(c(&path), flags.bits().cast_signed(), mode.bits()),
            );
            let told = said(&done);
            let Kind::Openat2(op) = done.op.into_kind() else {
                panic!("{what}")
            };
            let fd = op.into_fd();
            assert_eq!(told.is_ok(), fd.is_some(), "{what}");
            if flags.contains(OFlags::CREATE) && told.is_ok() {
                use std::os::unix::fs::PermissionsExt;
                let mode = std::fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o7777, 0o640, "{what}");
                std::fs::remove_file(&path).unwrap();
            }
            let plain = rustix::fs::open(&path, flags, mode);
            let plain = plain.map(|_| 0).map_err(|e| e.raw_os_error());
            assert_eq!(told, plain, "{what}");
            if let Some(fd) = fd {
                let flags = rustix::io::fcntl_getfd(&fd).unwrap();
                assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "{what}");
            }
        }
        // Relative to a directory, and to a handle that is none.
        let directory = handle(dir.path());
        let op = || Openat2::new(c"file".into(), libc::O_RDONLY, 0);
        assert_eq!(said(&one(engine, op().at(&directory))), Ok(0));
        let no_directory = handle(&path);
        assert_eq!(
            said(&one(engine, op().at(&no_directory))),
            Err(libc::ENOTDIR)
        );
    });
}

#[test]
fn statx_says_what_the_call_says() {
    each_kind(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 1234);
        let mask = StatxMask::BASIC_STATS | StatxMask::BTIME;
        let long = dir.path().join("n".repeat(300));
        for path in [
            &path,
            &dir.path().to_owned(),
            &"/dev/null".into(),
            &dir.path().join("none"),
            &path.join("x"),
            &"".into(),
            &long,
        ] {
            let what = format!("{}: {}", name(engine), path.display());
            let plain = rustix::fs::statx(
                rustix::fs::CWD,
                path,
                AtFlags::empty(),
                StatxFlags::from_bits_retain(mask.bits()),
            );
            let done = one(engine, Statx::new(c(path), 0, mask));
            let told = said(&done);
            let Kind::Statx(op) = done.op.into_kind() else {
                panic!("{what}")
            };
            match plain {
                Ok(plain) => {
                    let got = op.metadata().expect(&what);
                    assert_eq!(told, Ok(0), "{what}");
                    assert_eq!(
                        (
                            got.ino(),
                            got.len(),
                            got.mode(),
                            got.nlink(),
                            got.mask().bits()
                        ),
                        (
                            plain.stx_ino,
                            plain.stx_size,
                            u32::from(plain.stx_mode),
                            u64::from(plain.stx_nlink),
                            plain.stx_mask
                        ),
                        "{what}"
                    );
                    assert_eq!(
                        got.mtime_nsec(),
                        i64::from(plain.stx_mtime.tv_nsec),
                        "{what}"
                    );
                }
                Err(e) => {
                    assert_eq!(told, Err(e.raw_os_error()), "{what}");
                    assert!(op.metadata().is_none(), "{what}");
                }
            }
        }
        let open = engine.file(&handle(&path));
        let done = one(engine, Statx::of(&open, mask));
        let Kind::Statx(op) = done.op.into_kind() else {
            panic!()
        };
        assert_eq!(op.metadata().unwrap().len(), 1234, "{}", name(engine));
    });
}

/// More than 4 GiB of memory that is never accessed.
struct Vast(NonNull<u8>);

const VAST: usize = (4 << 30) + 8192;

// SAFETY: the mapping is its own.
unsafe impl Send for Vast {}

impl Vast {
    fn new() -> Vast {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the kernel likes.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), VAST, access, flags) };
        Vast(NonNull::new(start.unwrap().cast()).unwrap())
    }
}

impl Drop for Vast {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), VAST).unwrap() };
    }
}

impl IoBuf for Vast {
    fn bytes(&self) -> &[u8] {
        // SAFETY: so much is mapped, and zero.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), VAST) }
    }
}

impl IoBufMut for Vast {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        // SAFETY: as above, and borrowed mutably.
        UninitSlice::Init(unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), VAST) })
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

#[test]
fn lengths_may_be_more_than_32_bits() {
    // The maximum that one call transfers.
    let most = 0x7fff_f000;
    each_kind(Options::new(), |engine| {
        let dir = scratch();
        let file = engine.file(&handle(&patterned(dir.path(), "file", 5000)));
        let null = std::fs::File::options().write(true).open("/dev/null");
        let null = engine.file(&Handle::new(null.unwrap()).unwrap());
        let vast = || Box::new(Vast::new());
        let said = |done: nowait::Completion| said(&done);

        assert_eq!(said(one(engine, Read::new(&file, vast(), 0))), Ok(5000));
        let both = vec![vast() as _, vast() as _];
        assert_eq!(said(one(engine, Readv::new(&file, both, 0))), Ok(5000));
        let at = i64::MAX as u64 - VAST as u64;
        assert_eq!(said(one(engine, Read::new(&file, vast(), at))), Ok(0));
        let beyond = Read::new(&file, vast(), at + 1);
        assert_eq!(said(one(engine, beyond)), Err(libc::EINVAL));

        let once = Write::stream(&null, vast());
        assert_eq!(said(one(engine, once)), Ok(most));
        let all = Write::stream(&null, vast()).all();
        assert_eq!(said(one(engine, all)), Ok(VAST));
        let both = vec![vast() as _, vast() as _];
        assert_eq!(said(one(engine, Writev::stream(&null, both))), Ok(most));
    });
}

#[test]
fn fallocate_says_what_the_call_says() {
    each_kind(Options::new(), |engine| {
        let kinds = Kinds::new(engine);
        let read_only = handle(&kinds.dir.path().join("file"));
        for (kind, handle) in kinds.all().into_iter().chain([("read-only", &read_only)]) {
            for (mode, offset, len) in [
                (FallocateMode::empty(), 0, 20_000),
                (FallocateMode::KEEP_SIZE, 0, 90_000),
                (FallocateMode::empty(), 0, 0),
                (FallocateMode::PUNCH_HOLE, 0, 4096),
                (
                    FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE,
                    0,
                    4096,
                ),
                (FallocateMode::empty(), 1 << 62, 1 << 62),
                (FallocateMode::empty(), 1 << 63, 10),
                (FallocateMode::empty(), 0, 1 << 63),
            ] {
                let what = format!("{}: {kind} {mode:?} {len}@{offset}", name(engine));
                // SAFETY: no memory is involved.
                let plain = plain(unsafe {
                    libc::fallocate(raw(handle), mode.bits() as i32, offset as i64, len as i64)
                } as isize);
                let done = one(engine, Fallocate::new(handle, mode, offset, len));
                assert_eq!(said(&done), plain, "{what}");
            }
        }
        assert_eq!(
            std::fs::metadata(kinds.dir.path().join("file"))
                .unwrap()
                .len(),
            20_000
        );
    });
}

#[test]
fn fadvise_says_what_the_call_says() {
    each_kind(Options::new(), |engine| {
        let kinds = Kinds::new(engine);
        for (kind, handle) in kinds.all() {
            for (advice, number) in [
                (Advice::Normal, libc::POSIX_FADV_NORMAL),
                (Advice::Sequential, libc::POSIX_FADV_SEQUENTIAL),
                (Advice::Random, libc::POSIX_FADV_RANDOM),
                (Advice::NoReuse, libc::POSIX_FADV_NOREUSE),
                (Advice::WillNeed, libc::POSIX_FADV_WILLNEED),
                (Advice::DontNeed, libc::POSIX_FADV_DONTNEED),
            ] {
                for (offset, len) in [(0, 0), (0, 4096), (1 << 40, 1 << 40), (0, 1 << 63)] {
                    let what = format!("{}: {kind} {advice:?} {len}@{offset}", name(engine));
                    // SAFETY: no memory is involved. This call returns its errno.
                    let plain = match unsafe {
                        libc::posix_fadvise(raw(handle), offset, len as i64, number)
                    } {
                        0 => Ok(0),
                        errno => Err(errno),
                    };
                    let done = one(engine, Fadvise::new(handle, offset as u64, len, advice));
                    assert_eq!(said(&done), plain, "{what}");
                }
            }
        }
    });
}

#[test]
fn a_dontneed_takes_the_pages_away() {
    each_kind(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 64 << 10);
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        let open = engine.file(&handle(&path));
        let done = one(engine, Fadvise::new(&open, 0, 0, Advice::DontNeed));
        assert_eq!(said(&done), Ok(0));
        let done = one(engine, Read::new(&open, vec_of(64 << 10), 0));
        assert_eq!(bytes_of(done), pattern(0, 64 << 10), "{}", name(engine));
    });
}

#[test]
fn nops_come_back_with_ticket_and_token() {
    each_kind(Options::new(), |engine| {
        let mut tickets = Vec::new();
        for token in 0..100 {
            tickets.push((queued(engine, Op::from(Nop).user_data(token)), token));
        }
        let mut back: Vec<_> = finish(engine, 100)
            .into_iter()
            .map(|c| (c.ticket.unwrap(), c.op.get_user_data()))
            .collect();
        back.sort_unstable();
        assert_eq!(back, tickets, "{}", name(engine));
        assert_eq!(engine.in_flight(), 0);
    });
}

#[test]
fn many_operations_of_all_kinds_at_once() {
    each(Options::new().depth(64), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 256 << 10);
        let open = handle_rw(&path);
        let mut submitted = 0u64;
        let mut done = Vec::new();
        let mut waiting = Vec::new();
        while submitted < 2000 || engine.in_flight() > 0 {
            while submitted < 2000 && waiting.len() < 40 {
                let at = (submitted * 7919) % (250 << 10);
                let op: Op = match submitted % 6 {
                    0 => Write::new(&open, Box::new(pattern(at, 500)), at).into(),
                    1 => Readv::new(&open, vec![vec_of(10), vec_of(3000)], at).into(),
                    2 => Statx::of(&open, StatxMask::SIZE).into(),
                    3 => Nop.into(),
                    _ => Read::new(&open, Box::new(Vec::<u8>::with_capacity(4000)), at).into(),
                };
                waiting.push(op.user_data(at));
                submitted += 1;
            }
            engine.submit_batch(&mut waiting);
            engine
                .reap(&mut done, nowait::engine::Wait::For(1))
                .unwrap();
        }
        while !waiting.is_empty() {
            engine.submit_batch(&mut waiting);
            engine
                .reap(&mut done, nowait::engine::Wait::For(1))
                .unwrap();
        }
        while engine.in_flight() > 0 {
            engine
                .reap(&mut done, nowait::engine::Wait::For(1))
                .unwrap();
        }
        assert_eq!(done.len(), 2000, "{}", name(engine));
        for completion in done {
            let at = completion.op.get_user_data();
            let n = completion.result.as_ref().copied().unwrap();
            match completion.op.name() {
                "read" => {
                    let want = pattern(at, 4000.min((256 << 10) - at as usize));
                    assert_eq!(bytes_of(completion), want, "{}", name(engine));
                }
                "readv" => {
                    let want = pattern(at, 3010.min((256 << 10) - at as usize));
                    assert_eq!(pieces_of(completion).concat(), want, "{}", name(engine));
                }
                "write" => assert_eq!(n, 500),
                _ => {}
            }
        }
    });
}

#[test]
fn a_read_ends_short_only_at_the_end_of_the_file() {
    each_kind(Options::new(), |engine| {
        let dir = scratch();
        let size = 100_001usize;
        let path = patterned(dir.path(), "file", size);
        let open = engine.file(&handle(&path));
        for cold in [false, true] {
            for (at, len) in [
                (0, size),
                (0, size + 1),
                (0, 1 << 20),
                (99_000, 4096),
                (4096, 8192),
            ] {
                for batch in [false, true] {
                    if cold {
                        evict(&path);
                    }
                    let what = format!("{}: {len}@{at} cold {cold} batch {batch}", name(engine));
                    let op = Read::new(&open, engine.buffer(len), at as u64);
                    let done = if batch {
                        one_in_batch(engine, op)
                    } else {
                        one(engine, op)
                    };
                    let want = len.min(size - at);
                    assert_eq!(said(&done), Ok(want), "{what}");
                    let p = done.provenance;
                    assert_eq!(p.cached + p.device + p.unknown, want, "{what}: {p:?}");
                    assert!(bytes_of(done) == pattern(at as u64, want), "{what}");
                }
            }
        }
    });
}

#[test]
fn fixed_size_buffers_come_back_as_they_are() {
    each_kind(Options::new(), |engine| {
        let dir = scratch();
        let open = handle(&patterned(dir.path(), "file", 10));
        let boxed: Buffer = Box::new(vec![1u8; 16].into_boxed_slice());
        let done = one_in_batch(engine, Read::new(&open, boxed, 0));
        assert_eq!(said(&done), Ok(10));
        let got: Box<[u8]> = nowait::buffer::downcast(done.op.into_buffer().unwrap()).unwrap();
        assert_eq!(
            (&got[..10], &got[10..]),
            (&pattern(0, 10)[..], &[1u8; 6][..])
        );
    });
}

#[test]
fn flags_travel_with_the_operation() {
    each_kind(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 1000);
        let open = engine.file(&handle_rw(&path));
        // APPEND: whatever the offset.
        let op = Write::new(&open, Box::new("tail"), 0).flags(RwFlags::APPEND);
        assert_eq!(said(&one(engine, op)), Ok(4), "{}", name(engine));
        let op = Writev::new(&open, vec![Box::new("!")], 0).flags(RwFlags::APPEND);
        assert_eq!(said(&one(engine, op)), Ok(1), "{}", name(engine));
        let mut want = pattern(0, 1000);
        want.write_all(b"tail!").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), want, "{}", name(engine));
        // NOWAIT: missing data is not waited for, and a worker does not try again.
        let (reader, _writer) = pipe();
        let op = Read::stream(&reader, vec_of(10)).flags(RwFlags::NOWAIT);
        // (Pipes take the flag since 6.3.)
        let said_of_nothing = said(&one(engine, op));
        assert!(
            matches!(said_of_nothing, Err(libc::EAGAIN | libc::EOPNOTSUPP)),
            "{}: {said_of_nothing:?}",
            name(engine)
        );
        // An unknown flag is refused, not dropped.
        let odd = RwFlags::from_bits_retain(1 << 30);
        let op = Read::new(&open, vec_of(10), 0).flags(odd);
        let told = said(&one(engine, op));
        assert!(
            matches!(told, Err(libc::EOPNOTSUPP | libc::EINVAL)),
            "{told:?}"
        );
        // Polled reads need no polled ring.
        let op = Read::new(&open, vec_of(10), 0).flags(RwFlags::HIPRI);
        assert_eq!(said(&one(engine, op)), Ok(10), "{}", name(engine));
    });
}

#[test]
fn a_handle_in_use_keeps_its_descriptor() {
    each_kind(Options::new(), |engine| {
        let (reader, writer) = pipe();
        let ticket = queued(engine, Read::stream(&reader, vec_of(10)));
        let reader = reader.into_fd().unwrap_err();
        drop(reader);
        rustix::io::write(&writer, b"x").unwrap();
        let done = finish(engine, 1).remove(0);
        assert_eq!(
            (done.ticket, said(&done)),
            (Some(ticket), Ok(1)),
            "{}",
            name(engine)
        );
        drop(done);
        // The last owner was dropped, so the pipe has no reader.
        wait_until("the descriptor is closed", || {
            let mut poll = [rustix::event::PollFd::new(
                &writer,
                rustix::event::PollFlags::OUT,
            )];
            let now = rustix::time::Timespec::default();
            rustix::event::poll(&mut poll, Some(&now)).unwrap();
            poll[0].revents().contains(rustix::event::PollFlags::ERR)
        });
    });
}

#[test]
fn done_at_once_and_queued_tell_the_same() {
    each_kind(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 5000);
        let open = engine.file(&handle(&path));
        std::fs::read(&path).unwrap();
        match engine.submit(Op::from(Read::new(&open, vec_of(5000), 0)).user_data(3)) {
            Submit::Done(done) => {
                assert_eq!((done.ticket, done.op.get_user_data()), (None, 3));
                assert_eq!(bytes_of(done), pattern(0, 5000));
            }
            Submit::Queued(_) => {
                assert_eq!(bytes_of(finish(engine, 1).remove(0)), pattern(0, 5000))
            }
            Submit::Full(op) => panic!("{op:?}"),
        }
    });
}

#[test]
fn an_operation_that_is_submitted_again_begins_anew() {
    each_kind(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 5000);
        let open = engine.file(&handle_rw(&path));
        let what = name(engine);
        let kinds = [
            Op::from(Read::new(&open, vec_of(5000), 0)),
            Read::new(&open, vec_of(6000), 0).into(),
            Read::new(&open, vec_of(5000), 0).or_part().into(),
            Read::new(&open, vec_of(5000), 0)
                .flags(RwFlags::HIPRI)
                .into(),
            Readv::new(&open, vec![vec_of(2000), vec_of(3000)], 0).into(),
            Readv::new(&open, vec![vec_of(2000), vec_of(4000)], 0).into(),
        ];
        for op in kinds {
            let mut op = Some(op);
            for round in 0..3 {
                std::fs::write(&path, vec![round; 5000]).unwrap();
                let done = one(engine, op.take().unwrap());
                assert_eq!(said(&done), Ok(5000), "{what} {round}");
                op = Some(done.op);
            }
            let read = match op.unwrap().into_kind() {
                Kind::Readv(op) => pieces(op.into_buffers()),
                Kind::Read(op) => pieces(vec![op.into_buffer()]),
                other => panic!("{other:?}"),
            };
            assert_eq!(read, vec![2; 5000], "{what}");
        }
        let writes = [
            Op::from(Write::new(&open, Box::new(vec![7; 5000]), 0)),
            Write::new(&open, Box::new(vec![7; 5000]), 0).all().into(),
            Writev::new(&open, vec![Box::new(vec![7; 5000])], 0).into(),
        ];
        for op in writes {
            let mut op = Some(op);
            for round in 0..3 {
                std::fs::write(&path, []).unwrap();
                let done = one(engine, op.take().unwrap());
                assert_eq!(said(&done), Ok(5000), "{what} {round}");
                assert_eq!(std::fs::read(&path).unwrap(), vec![7; 5000], "{what}");
                op = Some(done.op);
            }
        }
        // At the file's own position.
        let (reader, writer) = pipe();
        let writer = Handle::new(writer).unwrap();
        let mut read = Some(Op::from(Read::stream(&reader, vec_of(10))));
        let mut write = Some(Op::from(Write::stream(&writer, Box::new("abcdef"))));
        for _ in 0..3 {
            let done = one(engine, write.take().unwrap());
            assert_eq!(said(&done), Ok(6), "{what}");
            write = Some(done.op);
            let done = one(engine, read.take().unwrap());
            assert_eq!(said(&done), Ok(6), "{what}");
            read = Some(done.op);
        }
        let buffer = read.and_then(Op::into_buffer).unwrap();
        assert_eq!(pieces(vec![buffer]), b"abcdef", "{what}");
    });
}

/// The bytes of buffers made by `vec_of`.
fn pieces(buffers: Vec<Buffer>) -> Vec<u8> {
    let bytes = |buffer| nowait::buffer::downcast::<Vec<u8>>(buffer).unwrap();
    buffers.into_iter().flat_map(bytes).collect()
}
