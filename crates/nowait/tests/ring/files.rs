//! Files that are registered with a ring: the slot is used on that ring only, and is freed.
#![allow(unsafe_code, reason = "descriptors are exchanged under a handle")]

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use nowait::engine::{Backend, Engine, Feature, LocalEngine, Options};
use nowait::op::{
    Advice, Fadvise, Fallocate, FallocateMode, Fsync, Op, Read, Readv, Write, Writev,
};
use nowait::read::NowaitPolicy;
use nowait::support::Support;
use nowait::{ErrorKind, Handle};

use crate::common::backends::backends;
use crate::common::completions::{finish, one, queued};
use crate::common::drive::{Drive, name};
use crate::common::files::scratch;
use crate::common::handles::{handle, handle_rw, pipe};
use crate::common::kinds::AnyKind;
use crate::common::limit::Limit;
use crate::common::results::{bytes_of, pieces_of};
use crate::common::wait::wait_until;
use crate::readable::readable;

/// The caller never tries: it would use the descriptor.
fn options() -> Options {
    Options::new()
        .nowait_policy(NowaitPolicy::Never)
        .backend(Backend::Uring)
}

fn ring() -> bool {
    backends()[0] == Backend::Uring
}

/// Replaces the file of a handle's descriptor.
fn exchange(handle: &Handle, path: &Path) {
    let other = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    // SAFETY: both are open; the handle's number stays a descriptor that it owns.
    let new = unsafe {
        let number = handle.as_fd().as_raw_fd();
        libc::dup3(other.as_raw_fd(), number, libc::O_CLOEXEC)
    };
    assert!(new >= 0);
}

fn read(engine: &mut dyn Drive, file: &Handle) -> Vec<u8> {
    bytes_of(one(engine, Read::new(file, Box::new(vec![0; 5]), 0)))
}

fn files(names: &[&str]) -> (tempfile::TempDir, Vec<std::path::PathBuf>) {
    let dir = scratch();
    let make = |name: &&str| {
        let path = dir.path().join(name);
        std::fs::write(&path, name.repeat(5)).unwrap();
        path
    };
    let paths = names.iter().map(make).collect();
    (dir, paths)
}

#[test]
fn operations_use_the_slot_on_their_engine_and_the_descriptor_elsewhere() {
    if !ring() {
        return;
    }
    let (_dir, paths) = files(&["a", "b", "c"]);
    let test = |engine: &mut AnyKind| {
        let file = engine.file(&handle_rw(&paths[0]));
        assert_eq!(read(engine, &file), b"aaaaa", "{}", name(engine));
        exchange(&file, &paths[1]);
        // The slot still holds the first file.
        assert_eq!(read(engine, &file), b"aaaaa", "{}", name(engine));
        let pieces = vec![Box::new(vec![0u8; 5]) as _];
        let readv = one(engine, Readv::new(&file, pieces, 0));
        assert_eq!(pieces_of(readv)[0], b"aaaaa");
        let write = one(engine, Write::new(&file, Box::new(b"A".to_vec()), 0));
        assert_eq!(write.result.unwrap(), 1);
        let writev = Writev::new(&file, vec![Box::new(b"A".to_vec())], 1);
        assert_eq!(one(engine, writev).result.unwrap(), 1);
        for op in [
            Op::from(Fsync::data(&file)),
            Fallocate::new(&file, FallocateMode::empty(), 0, 100).into(),
            Fadvise::new(&file, 0, 0, Advice::Normal).into(),
        ] {
            assert_eq!(one(engine, op).result.unwrap(), 0);
        }
        assert_eq!(std::fs::metadata(&paths[0]).unwrap().len(), 100);
        assert_eq!(std::fs::metadata(&paths[1]).unwrap().len(), 5);
        assert!(std::fs::read(&paths[0]).unwrap().starts_with(b"AAaaa"));
        for other in [Backend::Uring, Backend::Threads] {
            let mut other = Options::new().backend(other).build().unwrap();
            assert_eq!(read(&mut other, &file), b"bbbbb", "the descriptor");
        }
        // Also if that engine has another file in the slot of this number.
        let mut other = AnyKind::registered(options(), Options::build_local);
        let known = other.file(&handle(&paths[2]));
        assert_eq!(read(&mut other, &known), b"ccccc");
        assert_eq!(read(&mut other, &file), b"bbbbb", "the descriptor");
        std::fs::write(&paths[0], "aaaaa").unwrap();
    };
    let mut shared = AnyKind::registered(options(), Options::build);
    test(&mut shared);
    let mut local = AnyKind::registered(options(), Options::build_local);
    test(&mut local);
}

#[test]
fn a_slot_is_free_when_handles_and_operations_have_let_go() {
    for backend in backends() {
        let options = options().backend(backend);
        let mut engine = options.build_local().unwrap();
        let set = engine.file_set(1).unwrap();
        assert_eq!((set.capacity(), set.free()), (1, 1));
        let (reader, writer) = pipe();
        let reader = set.insert(&reader).unwrap();
        queued(&mut engine, Read::stream(&reader, Box::new(vec![0; 5])));
        drop(reader);
        let (_dir, paths) = files(&["a"]);
        let file = handle(&paths[0]);
        assert_eq!(set.insert(&file).unwrap_err().kind(), ErrorKind::SetFull);
        rustix::io::write(&writer, b"piped").unwrap();
        let done = finish(&mut engine, 1).remove(0);
        assert_eq!(
            set.free(),
            0,
            "the completion has the operation, and that the handle"
        );
        assert_eq!(bytes_of(done), b"piped");
        assert_eq!(set.free(), 1);
        let file = set.insert(&file).unwrap();
        assert_eq!(read(&mut engine, &file), b"aaaaa");
    }
}

#[test]
fn an_unused_file_is_closed_on_an_idle_engine() {
    if !ring() {
        return;
    }
    let engine = options().build().unwrap();
    let set = engine.file_set(4).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let writer = set.insert(&Handle::new(writer).unwrap()).unwrap();
    let op = Write::stream(&writer, Box::new(b"x".to_vec()));
    assert_eq!(one(&mut engine.clone(), op).result.unwrap(), 1);
    rustix::io::read(&reader, &mut [0; 1]).unwrap();
    assert!(!readable(&reader));
    drop(writer);
    wait_until("the owner clears the slot", || readable(&reader));
}

#[test]
fn a_local_engine_closes_such_a_file_when_it_is_used_next() {
    if !ring() {
        return;
    }
    let mut engine = options().build_local().unwrap();
    let set = engine.file_set(4).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let writer = set.insert(&Handle::new(writer).unwrap()).unwrap();
    let op = Write::stream(&writer, Box::new(b"x".to_vec()));
    assert_eq!(one(&mut engine, op).result.unwrap(), 1);
    rustix::io::read(&reader, &mut [0; 1]).unwrap();
    drop(writer);
    wait_until("a reap clears the slot", || {
        engine
            .reap(&mut Vec::new(), nowait::engine::Wait::No)
            .unwrap();
        readable(&reader)
    });
    // A file that was never registered with the ring is closed without it. (A child that another test has
    // just forked holds the descriptor until it calls execve(2).)
    let (reader, writer) = std::io::pipe().unwrap();
    drop(set.insert(&Handle::new(writer).unwrap()).unwrap());
    wait_until("the file is closed", || readable(&reader));
    // A file whose engine was dropped is closed with the ring.
    let (reader, writer) = std::io::pipe().unwrap();
    let writer = set.insert(&Handle::new(writer).unwrap()).unwrap();
    engine
        .reap(&mut Vec::new(), nowait::engine::Wait::No)
        .unwrap();
    drop(engine);
    drop(writer);
    wait_until("the ring goes", || readable(&reader));
}

/// Several threads fill and free slots: each read returns the bytes of its own file.
#[test]
fn slots_are_reused_without_mixing_files_up() {
    if !ring() {
        return;
    }
    let _limit = Limit::new("churn".into());
    let dir = scratch();
    let paths: Vec<_> = (0..32u8)
        .map(|i| {
            let path = dir.path().join(i.to_string());
            std::fs::write(&path, [i; 64]).unwrap();
            path
        })
        .collect();
    let engine = options().build().unwrap();
    let set = engine.file_set(5).unwrap();
    let full = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (engine, set, paths, full) = (&engine, &set, &paths, &full);
            scope.spawn(move || {
                for round in 0..500 {
                    let i = (round * 7 + thread * 13) % paths.len();
                    let plain = handle(&paths[i]);
                    let known = match set.insert(&plain) {
                        Ok(known) => known,
                        Err(e) => {
                            assert_eq!(e.kind(), ErrorKind::SetFull);
                            full.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                    };
                    let file = nowait::File::from_handle(&known, engine);
                    for _ in 0..2 {
                        let read = pollster::block_on(file.read_at(vec![0; 64], 0));
                        let (n, bytes) = read.into_result().unwrap();
                        assert_eq!((n, bytes), (64, vec![i as u8; 64]));
                    }
                }
            });
        }
    });
    assert!(full.into_inner() < 2000, "some were in slots");
    wait_until("all slots come back", || set.free() == 5);
}

#[test]
fn an_engine_has_one_set_and_says_whether_it_is_registered() {
    for backend in backends() {
        let mut local: LocalEngine = options().backend(backend).build_local().unwrap();
        let shared: Engine = options().backend(backend).build().unwrap();
        for made in [local.file_set(8), shared.file_set(8)] {
            assert_eq!(made.unwrap().capacity(), 8);
        }
        for refused in [local.file_set(8), shared.file_set(8)] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        let files = Feature::RegisteredFiles;
        for state in [local.support(files), shared.support(files)] {
            match backend {
                Backend::Uring => assert_eq!(state, Support::Yes),
                Backend::Threads => assert!(matches!(state, Support::No(_))),
            }
        }
    }
    let mut engine = LocalEngine::new().unwrap();
    for capacity in [0, (1 << 20) + 1] {
        let refused = engine.file_set(capacity).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
    assert!(engine.file_set(1).is_ok(), "a refused one is none");
}
