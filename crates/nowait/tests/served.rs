//! Files of FUSE servers that answer with less than was asked for: every byte is the right one.

#[path = "common/engines.rs"]
mod engines;
#[path = "common/served.rs"]
mod server;

use std::sync::atomic::{AtomicUsize, Ordering};

use engines::*;
use nowait::engine::Options;
use nowait::op::{Op, Read, Readv, Write};

const LEN: usize = 20_000;

/// A file whose reads and writes are short, each by another length.
fn short() -> server::Served {
    let asked = AtomicUsize::new(0);
    server::serve(pattern(0, LEN), move |_| {
        Ok([4096, 1000, 1, 3000, 512][asked.fetch_add(1, Ordering::Relaxed) % 5])
    })
}

#[test]
fn short_reads_of_a_server_are_continued_with_the_right_bytes() {
    slowdisk::require!(slowdisk::available());
    each_kind(Options::new(), |engine| {
        let served = short();
        let open = engine.file(&handle(&served.path));
        let read = |at, len| Read::new(&open, Box::new(vec![0u8; len]), at);
        for (at, len) in [(0, LEN), (5, 9_000), (4096, 4096), (LEN as u64 - 10, 100)] {
            let there = len.min(LEN - at as usize);
            let done = one_in_batch(engine, read(at, len));
            assert_eq!(said(&done), Ok(there), "{} {at}", name(engine));
            let bytes = bytes_of(done);
            assert!(
                bytes[..there] == pattern(at, there),
                "{} {at}",
                name(engine)
            );
            let buffers: Vec<nowait::buffer::Buffer> = (0..4)
                .map(|_| Box::new(vec![0u8; len.div_ceil(4)]) as nowait::buffer::Buffer)
                .collect();
            let done = one_in_batch(engine, Readv::new(&open, buffers, at));
            let there = (4 * len.div_ceil(4)).min(LEN - at as usize);
            assert_eq!(said(&done), Ok(there), "{} {at}", name(engine));
            let bytes: Vec<u8> = pieces_of(done).concat();
            assert!(
                bytes[..there] == pattern(at, there),
                "{} {at}",
                name(engine)
            );
        }
        let mut ops: Vec<Op> = (0..20)
            .map(|i| Op::from(read(i * 900, 2_000)).user_data(i * 900))
            .collect();
        assert_eq!(engine.submit_batch(&mut ops), 20);
        for done in finish(engine, 20) {
            let at = done.op.get_user_data();
            assert!(
                bytes_of(done) == pattern(at, 2_000),
                "{} {at}",
                name(engine)
            );
        }
    });
}

#[test]
fn short_writes_of_a_server_are_continued_with_the_right_bytes() {
    slowdisk::require!(slowdisk::available());
    each_kind(Options::new(), |engine| {
        let served = short();
        let open = engine.file(&handle_rw(&served.path));
        for (at, len) in [(0u64, LEN), (5, 9_000), (4096, 4096)] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + 3) as u8).collect();
            let write = Write::new(&open, Box::new(bytes.clone()), at).all();
            assert_eq!(
                said(&one_in_batch(engine, write)),
                Ok(len),
                "{}",
                name(engine)
            );
            let there = served.bytes.lock().unwrap()[at as usize..][..len].to_vec();
            assert!(there == bytes, "{} {at}", name(engine));
            // One kernel write: what it says is what is there.
            let bytes: Vec<u8> = bytes.iter().map(|b| !b).collect();
            let write = Write::new(&open, Box::new(bytes.clone()), at);
            let n = said(&one_in_batch(engine, write)).unwrap();
            let there = served.bytes.lock().unwrap()[at as usize..][..n].to_vec();
            assert!(n > 0 && there == bytes[..n], "{} {at}", name(engine));
        }
    });
}
