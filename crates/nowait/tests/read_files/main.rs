//! Streams of many small files.

#[path = "../common"]
mod common {
    pub mod backends;
    pub mod cache;
    pub mod children;
    pub mod files;
    pub mod growing;
    pub mod limit;
    pub mod mounts;
    pub mod nobody;
    pub mod open_paths;
    pub mod rig;
    pub mod wait;
}

mod bounds;
mod contents;
mod errors;
mod into;
mod lease;
mod replaced;
mod stall;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use nowait::engine::{Engine, Options as EngineOptions};
use nowait::read_files::Options;
use nowait::{FileContents, Result};

use common::backends::backends;
use common::children::{in_child_by, this_program};

/// An engine on each backend.
fn engines() -> Vec<Engine> {
    let engine = |backend| EngineOptions::new().backend(backend).build().unwrap();
    backends().into_iter().map(engine).collect()
}

/// Runs the calling test again in a child that has no /proc.
fn without_proc() {
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs none /proc && exec \"$@\"";
    command.args(["-m", "sh", "-c", script, "sh"]);
    command.arg(this_program());
    in_child_by(command, "without /proc");
}

/// The faces of a stream.
#[derive(Clone, Copy, Debug)]
enum Face {
    /// The blocking iterator, which begins in the calling thread.
    Caller,
    /// The blocking iterator after a future, by workers alone.
    Workers,
    Future,
}

const FACES: [Face; 3] = [Face::Caller, Face::Workers, Face::Future];

/// All results of a stream, in the order in which they came.
fn results<P: AsRef<Path>>(
    options: &Options,
    face: Face,
    paths: impl IntoIterator<Item = P>,
) -> Vec<Result<FileContents>> {
    let mut files = options.read(paths);
    match face {
        Face::Caller => files.collect(),
        Face::Workers => {
            let first = pollster::block_on(files.next_file());
            first.into_iter().chain(files).collect()
        }
        Face::Future => pollster::block_on(async {
            let mut all = Vec::new();
            while let Some(file) = files.next_file().await {
                all.push(file);
            }
            all
        }),
    }
}

/// All files, by path. Each path must come once.
fn by_path(results: Vec<Result<FileContents>>) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for file in results {
        let (path, bytes) = file.unwrap().into_parts();
        let twice = files.insert(path, bytes).is_some();
        assert!(!twice, "a path came twice");
    }
    files
}
