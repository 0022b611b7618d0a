//! `nowait::tokio::File` compared with `tokio::fs::File`: the same random steps return the same bytes,
//! positions and errors, on each filesystem and backend.
//!
//! It runs for about half a minute, or for `NOWAIT_DIFFERENTIAL_SECONDS`.

use std::fmt::Debug;
use std::future::Future;
use std::io::{self, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::task::Poll;
use std::time::{Duration, Instant};

use ::tokio::io::{AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt, AsyncWrite, AsyncWriteExt};
use futures_util::future::poll_fn;
use nowait::engine::{Engine, Options};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use slowdisk::{Filesystem, TestMount};

use crate::common::backends::backends;
use crate::common::cache::evict;
use crate::common::files::pattern;
use crate::common::limit::Limit;
use crate::common::wait::wait_until;

const SIZE: u64 = 200_000;
/// A position that no write ends at.
const FAR: u64 = 1 << 40;
/// The maximum number of open files.
const SLOTS: usize = 4;

/// A step on one of the open files, named by its number.
#[derive(Clone, Debug)]
enum Step {
    Open(usize, Flags),
    Read(usize, usize),
    /// A read whose future is dropped after its first poll; then this number of its bytes is read. At least one:
    /// a read that nothing waits for would race with the next step of a clone.
    GiveUp(usize, usize, usize),
    Write(usize, usize),
    /// A write, and the file is dropped without a flush.
    WriteAndDrop(usize, usize),
    Seek(usize, SeekFrom),
    Flush(usize),
    Sync(usize),
    SetLen(usize, u64),
    Clone(usize),
    Drop(usize),
    /// Conversion to the standard library's file and back, with a write or a read of it.
    Std(usize, bool),
    /// A child process writes to it, or reads from it.
    Child(usize, bool),
    /// A seek of a duplicate.
    Lseek(usize, u64),
    /// Evicts the file from the page cache.
    Chill,
}

#[derive(Clone, Copy, Debug)]
struct Flags {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let n = || 0..SLOTS;
    let len = || {
        prop_oneof![
            1..100usize,
            1..20_000usize,
            Just(4096usize),
            Just(300_000usize)
        ]
    };
    let by = || -(SIZE as i64)..SIZE as i64;
    let flags = prop_oneof![
        4 => Just((true, true, false, false)),
        2 => Just((true, false, true, false)),
        2 => Just((true, false, false, false)),
        1 => Just((false, true, false, false)),
        1 => Just((true, true, false, true)),
        1 => any::<(bool, bool, bool, bool)>(),
    ]
    .prop_map(|(read, write, append, truncate)| Flags {
        read,
        write,
        append,
        truncate,
    });
    let step = prop_oneof![
        3 => (n(), flags).prop_map(|(n, flags)| Step::Open(n, flags)),
        8 => (n(), len()).prop_map(|(n, len)| Step::Read(n, len)),
        4 => (n(), len(), 1..3000usize).prop_map(|(n, len, take)| Step::GiveUp(n, len, take)),
        6 => (n(), len()).prop_map(|(n, len)| Step::Write(n, len)),
        2 => (n(), len()).prop_map(|(n, len)| Step::WriteAndDrop(n, len)),
        2 => (n(), 0..SIZE * 2).prop_map(|(n, to)| Step::Seek(n, SeekFrom::Start(to))),
        3 => (n(), by()).prop_map(|(n, by)| Step::Seek(n, SeekFrom::Current(by))),
        1 => (n(), by()).prop_map(|(n, by)| Step::Seek(n, SeekFrom::End(by))),
        1 => n().prop_map(Step::Flush),
        1 => n().prop_map(Step::Sync),
        2 => (n(), 0..SIZE * 2).prop_map(|(n, len)| Step::SetLen(n, len)),
        4 => n().prop_map(Step::Clone),
        1 => n().prop_map(Step::Drop),
        2 => (n(), any::<bool>()).prop_map(|(n, write)| Step::Std(n, write)),
        1 => (n(), any::<bool>()).prop_map(|(n, write)| Step::Child(n, write)),
        1 => (n(), 0..SIZE).prop_map(|(n, to)| Step::Lseek(n, to)),
        3 => Just(Step::Chill),
    ];
    let open = Just(Step::Open(
        0,
        Flags {
            read: true,
            write: true,
            append: false,
            truncate: false,
        },
    ));
    (open, proptest::collection::vec(step, 1..40)).prop_map(|(open, mut steps)| {
        steps.insert(0, open);
        steps
    })
}

/// The methods that both files have.
trait Face: AsyncRead + AsyncWrite + AsyncSeek + AsFd + Debug + Unpin + Sized {
    async fn open(path: &Path, flags: Flags, engine: &Engine) -> io::Result<Self>;
    async fn set_len(&self, len: u64) -> io::Result<()>;
    async fn sync_all(&self) -> io::Result<()>;
    async fn try_clone(&self) -> io::Result<Self>;
    async fn into_std(self) -> std::fs::File;
    fn from_std(std: std::fs::File, engine: &Engine) -> Self;
}

macro_rules! face {
    ($fs:path, $engine:ident, $options:ident => $set:expr, $std:ident => $taken:expr) => {
        const _: () = {
            use $fs as fs;
            impl Face for fs::File {
                async fn open(path: &Path, flags: Flags, $engine: &Engine) -> io::Result<Self> {
                    let mut $options = fs::OpenOptions::new();
                    $options.read(flags.read).write(flags.write);
                    $options.append(flags.append).truncate(flags.truncate);
                    let options = $set;
                    options.open(path).await
                }
                async fn set_len(&self, len: u64) -> io::Result<()> {
                    fs::File::set_len(self, len).await
                }
                async fn sync_all(&self) -> io::Result<()> {
                    fs::File::sync_all(self).await
                }
                async fn try_clone(&self) -> io::Result<Self> {
                    fs::File::try_clone(self).await
                }
                async fn into_std(self) -> std::fs::File {
                    fs::File::into_std(self).await
                }
                fn from_std($std: std::fs::File, $engine: &Engine) -> Self {
                    $taken
                }
            }
        };
    };
}

face!(::tokio::fs, _engine, options => options, std => fs::File::from_std(std));
face!(::nowait::tokio, engine, options => options.engine(engine), std => {
    nowait::File::from_fd(std, engine).unwrap().into()
});

/// The outcome of a step.
#[derive(Debug, Default)]
struct Came {
    failed: Option<io::Error>,
    bytes: Vec<u8>,
    /// The position of the stream, or the result of a seek.
    at: Option<u64>,
}

impl Came {
    fn of<T>(result: io::Result<T>, at: impl FnOnce(T) -> Option<u64>) -> Came {
        match result {
            Ok(done) => Came {
                at: at(done),
                ..Came::default()
            },
            Err(error) => Came {
                failed: Some(error),
                ..Came::default()
            },
        }
    }

    /// tokio loses the errno of an error that it reports later.
    fn is_like(&self, theirs: &Came) -> bool {
        let errors = match (&self.failed, &theirs.failed) {
            (Some(ours), Some(theirs)) => {
                let number = theirs.raw_os_error();
                ours.kind() == theirs.kind() && (number.is_none() || ours.raw_os_error() == number)
            }
            (ours, theirs) => ours.is_none() && theirs.is_none(),
        };
        errors && self.at == theirs.at && self.bytes == theirs.bytes
    }
}

/// One of the two sides, with its file and its open streams.
struct Side<F> {
    path: PathBuf,
    engine: Engine,
    slots: [Option<F>; SLOTS],
}

impl<F: Face> Side<F> {
    fn new(dir: &Path, name: &str, engine: &Engine) -> Side<F> {
        let path = dir.join(name);
        std::fs::write(&path, pattern(0, SIZE as usize)).unwrap();
        Side {
            path,
            engine: engine.clone(),
            slots: [const { None }; SLOTS],
        }
    }

    /// Waits for the operations of other streams: their order is not defined.
    async fn settle(&mut self, but: usize) -> Option<io::Error> {
        let mut failed = None;
        for (n, slot) in self.slots.iter_mut().enumerate() {
            if let (true, Some(file)) = (n != but, slot) {
                failed = failed.or(file.flush().await.err());
            }
        }
        failed
    }

    async fn read(file: &mut F, len: usize) -> Came {
        let mut came = Came {
            bytes: vec![0; len],
            ..Came::default()
        };
        let mut got = 0;
        while got < len {
            // A short read in the middle is allowed.
            match file.read(&mut came.bytes[got..]).await {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(error) => {
                    came.failed = Some(error);
                    break;
                }
            }
        }
        came.bytes.truncate(got);
        came
    }

    /// Drops the future of a read. A read that is ready at once is undone; returns true then, and if no read has begun.
    async fn give_up(&mut self, n: usize, len: usize) -> bool {
        let Some(file) = &mut self.slots[n] else {
            return false;
        };
        let mut room = vec![0; len];
        // The first poll of a read begins it, unless the task's cooperative budget is used up.
        ::tokio::task::yield_now().await;
        let polled = {
            let mut read = std::pin::pin!(file.read(&mut room));
            poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await
        };
        if let Poll::Ready(Ok(n)) = polled {
            // It fails where the position was moved to before what the file has read.
            let _ = Self::seek(file, SeekFrom::Current(-(n as i64))).await;
        }
        // A seek fails while a read is in flight. On a busy machine, nowait may have no permit for one.
        let mut file = std::pin::pin!(file);
        let is_read =
            polled.is_pending() && file.as_mut().start_seek(SeekFrom::Current(0)).is_err();
        if polled.is_pending() && !is_read {
            let _ = poll_fn(|cx| file.as_mut().poll_complete(cx)).await;
        }
        !is_read
    }

    /// Seeks back by the bytes that were read and not taken.
    async fn give_back(&mut self, n: usize) {
        if let Some(file) = &mut self.slots[n] {
            let _ = Self::seek(file, SeekFrom::Current(0)).await;
        }
    }

    /// After a seek that fails, tokio has dropped the unread bytes and nowait has kept them. The next seek
    /// ends the difference.
    async fn seek(file: &mut F, to: SeekFrom) -> io::Result<u64> {
        let sought = file.seek(to).await;
        if sought.is_err() {
            file.rewind().await.unwrap();
        }
        sought
    }

    /// A write seeks back over unread bytes, and fails with EINVAL where the position was moved to before
    /// them. tokio has dropped the unread bytes then, and nowait has kept them, as after a seek that fails.
    async fn end_difference(&mut self, came: &Came) {
        let kind = came.failed.as_ref().map(io::Error::kind);
        if kind == Some(io::ErrorKind::InvalidInput) {
            for file in self.slots.iter_mut().flatten() {
                file.rewind().await.unwrap();
            }
        }
    }

    async fn step(&mut self, number: usize, step: &Step) -> Came {
        let bytes = |len: usize| pattern(number as u64 * 7, len);
        match *step {
            Step::Open(n, flags) => {
                self.slots[n] = None;
                match F::open(&self.path, flags, &self.engine).await {
                    Ok(file) => self.slots[n] = Some(file),
                    Err(error) => return Came::of::<()>(Err(error), |()| None),
                }
            }
            Step::Read(n, len) | Step::GiveUp(n, _, len) => {
                if let Some(file) = &mut self.slots[n] {
                    return Self::read(file, len).await;
                }
            }
            Step::Write(n, len) => {
                if let Some(file) = &mut self.slots[n] {
                    return Came::of(file.write_all(&bytes(len)).await, |()| None);
                }
            }
            Step::WriteAndDrop(n, len) => {
                let Some(mut file) = self.slots[n].take() else {
                    return Came::default();
                };
                let flushed = file.flush().await;
                if flushed
                    .as_ref()
                    .is_err_and(|e| e.kind() == io::ErrorKind::InvalidInput)
                {
                    // As in `end_difference`.
                    file.rewind().await.unwrap();
                }
                let flags = rustix::fs::fcntl_getfl(&file).unwrap();
                let writes = flags.intersects(rustix::fs::OFlags::RWMODE);
                // Seeks back over unread bytes: then the position shows the written bytes.
                let mut from = SeekFrom::Current(0);
                if flags.contains(rustix::fs::OFlags::APPEND) {
                    // The end of the file after the write may be the position before it.
                    from = SeekFrom::Start(FAR);
                }
                let _ = Self::seek(&mut file, from).await;
                let at = file.stream_position().await.unwrap();
                let other = file.as_fd().try_clone_to_owned().unwrap();
                let written = file.write_all(&bytes(len)).await;
                drop(file);
                if writes {
                    wait_until("it is written", || rustix::fs::tell(&other).unwrap() != at);
                }
                return Came::of(flushed.and(written), |()| Some(at));
            }
            Step::Seek(n, to) => {
                if let Some(file) = &mut self.slots[n] {
                    return Came::of(Self::seek(file, to).await, Some);
                }
            }
            Step::Flush(n) => {
                if let Some(file) = &mut self.slots[n] {
                    return Came::of(file.flush().await, |()| None);
                }
            }
            Step::Sync(n) => {
                if let Some(file) = &mut self.slots[n] {
                    return Came::of(file.sync_all().await, |()| None);
                }
            }
            Step::SetLen(n, len) => {
                if let Some(file) = &mut self.slots[n] {
                    return Came::of(file.set_len(len).await, |()| None);
                }
            }
            Step::Clone(n) => {
                let Some(file) = &self.slots[n] else {
                    return Came::default();
                };
                match file.try_clone().await {
                    Ok(clone) => self.slots[(n + 1) % SLOTS] = Some(clone),
                    Err(error) => return Came::of::<()>(Err(error), |()| None),
                }
            }
            Step::Drop(n) => {
                if let Some(file) = &mut self.slots[n] {
                    let flushed = file.flush().await;
                    self.slots[n] = None;
                    return Came::of(flushed, |()| None);
                }
            }
            Step::Std(n, write) => {
                let Some(file) = self.slots[n].take() else {
                    return Came::default();
                };
                use io::{Read, Seek, Write};
                let mut std = file.into_std().await;
                let mut came = Came {
                    bytes: vec![0; 1000],
                    at: Some(std.stream_position().unwrap()),
                    ..Came::default()
                };
                let moved = match write {
                    true => std.write(&bytes(1000)),
                    false => std.read(&mut came.bytes),
                };
                came.failed = moved.err();
                self.slots[n] = Some(F::from_std(std, &self.engine));
                return came;
            }
            Step::Child(n, write) => {
                let Some(file) = &self.slots[n] else {
                    return Came::default();
                };
                let clone = file.try_clone().await.unwrap().into_std().await;
                let mut dd = Command::new("dd");
                dd.args(["bs=3000", "count=1"]).stderr(Stdio::null());
                let done = match write {
                    true => dd.arg("if=/proc/version").stdout(clone).output(),
                    false => dd.stdin(clone).stdout(Stdio::piped()).output(),
                };
                return Came {
                    bytes: done.unwrap().stdout,
                    ..Came::default()
                };
            }
            Step::Lseek(n, to) => {
                if let Some(file) = &self.slots[n] {
                    let other: OwnedFd = file.as_fd().try_clone_to_owned().unwrap();
                    rustix::fs::seek(&other, rustix::fs::SeekFrom::Start(to)).unwrap();
                }
            }
            Step::Chill => evict(&self.path),
        }
        Came::default()
    }
}

impl Step {
    /// The number of the stream.
    fn slot(&self) -> usize {
        match *self {
            Step::Open(n, _)
            | Step::Read(n, _)
            | Step::GiveUp(n, ..)
            | Step::Write(n, _)
            | Step::WriteAndDrop(n, _)
            | Step::Seek(n, _)
            | Step::Flush(n)
            | Step::Sync(n)
            | Step::SetLen(n, _)
            | Step::Clone(n)
            | Step::Drop(n)
            | Step::Std(n, _)
            | Step::Child(n, _)
            | Step::Lseek(n, _) => n,
            Step::Chill => SLOTS,
        }
    }

    /// Returns true if the file's earlier operations must have ended: the outcome depends on them.
    fn comes_after_flush(&self) -> bool {
        matches!(
            self,
            Step::Open(..)
                // A first poll that finds a write in flight begins no read.
                | Step::GiveUp(..)
                | Step::Std(..)
                | Step::Child(..)
                | Step::Lseek(..)
                | Step::Chill
        )
    }
}

/// Carries out the steps on both sides and compares the outcomes.
async fn go(engine: &Engine, dir: &Path, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut ours = Side::<nowait::tokio::File>::new(dir, "ours", engine);
    let mut theirs = Side::<::tokio::fs::File>::new(dir, "theirs", engine);
    let same = |number: usize, step: &dyn Debug, a: &Came, b: &Came| {
        if a.is_like(b) {
            return Ok(());
        }
        let shown = |came: &Came| {
            let Came { failed, bytes, at } = came;
            format!("{} bytes, at {at:?}, {failed:?}", bytes.len())
        };
        let (a, b) = (shown(a), shown(b));
        Err(TestCaseError::fail(format!(
            "step {number}, {step:?}: ours {a}; theirs {b}"
        )))
    };
    for (number, step) in steps.iter().enumerate() {
        let but = if step.comes_after_flush() {
            SLOTS
        } else {
            step.slot()
        };
        let settled = [ours.settle(but).await, theirs.settle(but).await].map(|failed| Came {
            failed,
            ..Came::default()
        });
        same(number, &"settle", &settled[0], &settled[1])?;
        ours.end_difference(&settled[0]).await;
        theirs.end_difference(&settled[1]).await;
        if let Step::GiveUp(n, len, _) = *step {
            let b = theirs.give_up(n, len).await;
            let a = ours.give_up(n, len).await;
            if a != b {
                // One side has unread bytes, and the other has none.
                theirs.give_back(n).await;
                ours.give_back(n).await;
            }
        }
        let b = theirs.step(number, step).await;
        let a = ours.step(number, step).await;
        same(number, step, &a, &b)?;
        ours.end_difference(&a).await;
        theirs.end_difference(&b).await;
    }
    ours.settle(SLOTS).await;
    theirs.settle(SLOTS).await;
    let contents = [&ours.path, &theirs.path].map(|path| std::fs::read(path).unwrap());
    prop_assert!(contents[0] == contents[1], "the files differ in the end");
    Ok(())
}

/// The duration of the test.
fn time() -> Duration {
    let seconds = std::env::var("NOWAIT_DIFFERENTIAL_SECONDS");
    Duration::from_secs(seconds.map_or(30, |n| n.parse().unwrap()))
}

fn like_tokios(filesystem: Filesystem) {
    slowdisk::require!(filesystem.available());
    let mount = TestMount::new(filesystem).unwrap();
    let runtime = ::tokio::runtime::Runtime::new().unwrap();
    let config = Config {
        failure_persistence: None,
        max_shrink_iters: 300,
        // In milliseconds. A failure is shown before the time limit takes it for a hang.
        max_shrink_time: 20_000,
        ..Config::with_cases(4)
    };
    let backends = backends();
    let each = time() / 3 / backends.len() as u32;
    for backend in backends {
        let engine = Options::new().backend(backend).build().unwrap();
        let begun = Instant::now();
        while begun.elapsed() < each {
            let _limit = Limit::new(format!("{filesystem:?}, {backend}"));
            let tried = TestRunner::new(config.clone()).run(&steps(), |steps| {
                runtime.block_on(go(&engine, mount.path(), &steps))
            });
            match tried {
                Ok(()) => {}
                Err(TestError::Fail(why, steps)) => {
                    panic!("{filesystem:?}, {backend}: {why}: {steps:?}")
                }
                Err(why) => panic!("{filesystem:?}, {backend}: {why}"),
            }
        }
    }
}

/// A write after a position that was moved to before the unread bytes.
#[test]
fn a_write_that_cannot_seek_back_fails_as_tokios() {
    let flags = Flags {
        read: true,
        write: true,
        append: false,
        truncate: false,
    };
    let steps = [
        Step::Open(0, flags),
        Step::Read(0, 4097),
        Step::Chill,
        Step::GiveUp(0, 300_000, 1),
        Step::Lseek(0, 1),
        Step::Write(0, 1),
        Step::GiveUp(0, 1, 1),
        Step::Chill,
        Step::GiveUp(0, 300_000, 1),
        Step::Lseek(0, 1),
        Step::Write(0, 1),
        Step::WriteAndDrop(0, 3),
    ];
    slowdisk::require!(Filesystem::Overlay.available());
    let mount = TestMount::new(Filesystem::Overlay).unwrap();
    let runtime = ::tokio::runtime::Runtime::new().unwrap();
    for backend in backends() {
        let engine = Options::new().backend(backend).build().unwrap();
        for _ in 0..100 {
            runtime.block_on(go(&engine, mount.path(), &steps)).unwrap();
        }
    }
}

// One after the other: parallel runs gain nothing.
#[test]
fn random_steps_come_to_what_they_come_to_on_tokios_file() {
    for filesystem in [Filesystem::Ext4, Filesystem::Tmpfs, Filesystem::Overlay] {
        like_tokios(filesystem);
    }
}
