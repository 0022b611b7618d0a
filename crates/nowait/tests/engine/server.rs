//! Files of a FUSE server, alone and as the lower layer of an overlay: the calling thread of a future never
//! waits for the server.

use std::cell::Cell;
use std::path::Path;

use nowait::OpenOptions;
#[cfg(feature = "tokio")]
use nowait::StatxMask;
use nowait::engine::Options;
use nowait::read::Cached;
use nowait::residency::Reason;
use slowdisk::{Asked, Mount, ServedFile};

use crate::common::backends::backends;
use crate::common::files::pattern;

const LEN: usize = 20_000;

fn this_thread() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
}

/// The requests of this thread to a server.
struct Waits<'a> {
    served: &'a ServedFile,
    path: &'a Path,
    seen: Cell<usize>,
}

impl Waits<'_> {
    /// Checks that this thread has waited for no request since the last call.
    fn none(&self, what: &str) {
        let requests = self.served.requests_of(this_thread());
        let new: Vec<Asked> = requests[self.seen.replace(requests.len())..].to_vec();
        assert!(new.is_empty(), "{}: {what}: {new:?}", self.path.display());
    }

    /// Leaves out the requests until now.
    fn skip(&self) {
        self.seen.set(self.served.requests_of(this_thread()).len());
    }
}

/// Calls `test` with the file of a server, and with the same file in an overlay.
fn each_place(test: impl Fn(&Path, &Waits<'_>)) {
    let served = ServedFile::cached(pattern(0, LEN)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let [merged, empty] = ["merged", "empty"].map(|name| directory.path().join(name));
    std::fs::create_dir(&merged).unwrap();
    std::fs::create_dir(&empty).unwrap();
    let below = served.path().parent().unwrap();
    let options = format!("lowerdir={}:{}", below.display(), empty.display());
    let overlay = Mount::new("overlay", &merged, "overlay", &options).unwrap();
    for path in [served.path(), &overlay.path().join("file")] {
        let seen = Cell::new(0);
        let waits = Waits {
            served: &served,
            path,
            seen,
        };
        waits.skip();
        test(path, &waits);
    }
}

#[test]
fn an_open_and_a_close_do_not_wait_for_a_server_in_the_calling_thread() {
    slowdisk::require!(slowdisk::available());
    each_place(|path, waits| {
        for backend in backends() {
            let engine = Options::new().backend(backend).build().unwrap();
            for regular in [false, true] {
                let mut options = OpenOptions::new();
                options.read(true).regular(regular).engine(&engine);
                let file = pollster::block_on(options.open(path)).unwrap();
                waits.none(&format!("{backend}: open"));
                let done = pollster::block_on(file.read_at(vec![0; 100], 0));
                assert_eq!(done.into_result().unwrap().1, pattern(0, 100));
                waits.none(&format!("{backend}: read"));
                pollster::block_on(file.close()).unwrap();
                waits.none(&format!("{backend}: close"));
            }
        }
    });
}

#[test]
fn a_file_of_a_server_that_is_to_leave_the_cache_is_not_asked_about() {
    slowdisk::require!(slowdisk::available());
    each_place(|path, waits| {
        let engine = Options::new().build().unwrap();
        let mut options = OpenOptions::new();
        options.read(true).keep_cache(true).engine(&engine);
        let file = pollster::block_on(options.open(path)).unwrap();
        waits.none("open");
        assert_eq!(file.keeps_cache(), Err(Reason::Served));
        for offset in [0, LEN as u64 - 50] {
            let done = pollster::block_on(file.read_at(vec![0; 50], offset));
            assert_eq!(done.into_result().unwrap().1, pattern(offset, 50));
            waits.none("read");
        }
        pollster::block_on(file.close()).unwrap();
        waits.none("close");
    });
}

#[cfg(feature = "tokio")]
#[test]
fn a_tokio_file_does_not_wait_for_a_server_in_the_calling_thread() {
    slowdisk::require!(slowdisk::available());
    let runtime = ::tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    each_place(|path, waits| {
        runtime.block_on(async {
            let mut file = nowait::tokio::File::open(path).await.unwrap();
            waits.none("open");
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).await.unwrap();
            assert!(bytes == pattern(0, LEN));
            waits.none("read_to_end");
            assert_eq!(file.metadata().await.unwrap().len(), LEN as u64);
            waits.none("metadata of the file");
            // This thread closes it.
            drop(file.into_std().await);
            waits.skip();
            let metadata = nowait::tokio::metadata(path).await.unwrap();
            assert_eq!(metadata.len(), LEN as u64);
            let fields = StatxMask::BASIC_STATS;
            let metadata = nowait::tokio::statx(path, fields).await.unwrap();
            assert_eq!(metadata.len(), LEN as u64);
            assert!(nowait::tokio::read(path).await.unwrap() == pattern(0, LEN));
            waits.none("calls of a path");
        });
    });
}

/// The kernel asks the server for the size of the file, before it copies cached data up to the end.
#[test]
fn a_cached_read_does_not_wait_for_a_server_in_the_calling_thread() {
    slowdisk::require!(slowdisk::available());
    let served = ServedFile::cached(pattern(0, LEN)).unwrap();
    for backend in backends() {
        let engine = Options::new().backend(backend).build().unwrap();
        let open = OpenOptions::new()
            .read(true)
            .engine(&engine)
            .open(served.path());
        let file = pollster::block_on(open).unwrap();
        let before = served.requests_of(this_thread()).len();
        for _ in 0..4 {
            let done = pollster::block_on(file.read_at(vec![0; 2 * LEN], 0));
            let (n, bytes) = done.into_result().unwrap();
            assert!(n == LEN && bytes[..n] == pattern(0, LEN), "{backend}");
            let mut bytes = vec![0; 2 * LEN];
            let cached = nowait::read::try_cached(file.handle(), &mut bytes[..], 0).unwrap();
            assert!(
                !matches!(cached, Some(Cached::All(_) | Cached::Prefix(_))),
                "{backend}"
            );
        }
        let waited = &served.requests_of(this_thread())[before..];
        assert!(waited.is_empty(), "{backend}: {waited:?}");
    }
}
