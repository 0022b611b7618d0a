//! checksum: SHA-256 sums of files, and of all files in trees, many at once; printed as sha256sum(1)
//! does, so that `sha256sum -c` checks them.
//!
//! ```sh
//! cargo run --release -p nowait-examples --bin checksum -- src Cargo.toml > sums
//! sha256sum -c sums
//! ```
//!
//! One task walks, and at most [`AT_ONCE`] files are read at a time, each by a task of its own: what is
//! cached is read in the task, what is not is on its way from the device for many files together. The
//! lines come in the order in which the files were found.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use futures_util::{StreamExt, stream};
use nowait::FileType;
use nowait::Walk;
use nowait::tokio::{File, metadata, symlink_metadata};
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc::{self, Sender};

/// How many files are read at the same time.
const AT_ONCE: usize = 64;
/// How many bytes of a file are read at once.
const PIECE: usize = 128 << 10;

/// A file that was found, or why something was not.
type Found = Result<PathBuf, String>;

#[tokio::main]
async fn main() -> ExitCode {
    let roots: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if roots.is_empty() {
        eprintln!("usage: checksum FILE|DIRECTORY...");
        return ExitCode::from(2);
    }
    let (tell, mut found) = mpsc::channel(AT_ONCE);
    tokio::spawn(find(roots, tell));
    let found = stream::poll_fn(move |cx| found.poll_recv(cx));
    let mut lines = found
        .map(|found| tokio::spawn(line(found)))
        .buffered(AT_ONCE);
    let (mut out, mut all_well) = (io::stdout().lock(), true);
    while let Some(line) = lines.next().await {
        match line.expect("the task does not panic") {
            Ok(line) => {
                if let Err(error) = out.write_all(&line) {
                    eprintln!("checksum: standard output: {error}");
                    return ExitCode::FAILURE;
                }
            }
            Err(why) => {
                eprintln!("checksum: {why}");
                all_well = false;
            }
        }
    }
    ExitCode::from(u8::from(!all_well))
}

/// Sends what the arguments name: files as they are, and of directories all regular files.
async fn find(roots: Vec<PathBuf>, tell: Sender<Found>) {
    for root in roots {
        let is_dir = metadata(&root).await.is_ok_and(|m| m.is_dir());
        let told = if is_dir {
            find_in(&root, &tell).await
        } else {
            // A file, or nothing: whoever opens it will say.
            tell.send(Ok(root)).await.is_ok()
        };
        if !told {
            return;
        }
    }
}

/// Sends all regular files of a tree; says whether there is somebody to send them to.
async fn find_in(root: &Path, tell: &Sender<Found>) -> bool {
    let mut walk = match Walk::open(root).await {
        Ok(walk) => walk,
        Err(error) => return tell.send(Err(error.to_string())).await.is_ok(),
    };
    while let Some(batch) = walk.batch().await {
        let batch = match batch {
            Ok(batch) => batch,
            // A directory that can't be listed: the others still come.
            Err(error) if tell.send(Err(error.to_string())).await.is_ok() => continue,
            Err(_) => return false,
        };
        for entry in batch.batch().iter() {
            let path = batch.place().path().join(entry.file_name());
            let is_file = match entry.file_type() {
                FileType::File => true,
                FileType::Unknown => symlink_metadata(&path).await.is_ok_and(|m| m.is_file()),
                _ => false,
            };
            if is_file && tell.send(Ok(path)).await.is_err() {
                return false;
            }
        }
    }
    true
}

/// One line of output.
async fn line(found: Found) -> Result<Vec<u8>, String> {
    let path = found?;
    let sum = sum(&path)
        .await
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let mut line = format!("{sum}  ").into_bytes();
    // As sha256sum does: a backslash at the start says that there are some in the name.
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'\\' => line.extend(b"\\\\"),
            b'\n' => line.extend(b"\\n"),
            b'\r' => line.extend(b"\\r"),
            other => line.push(*other),
        }
    }
    if line.contains(&b'\\') {
        line.insert(0, b'\\');
    }
    line.push(b'\n');
    Ok(line)
}

/// The SHA-256 sum of a file, in hexadecimal digits.
async fn sum(path: &Path) -> io::Result<String> {
    let mut file = File::open(path).await?;
    let mut sum = Sha256::new();
    let mut piece = Vec::with_capacity(PIECE);
    while file.read_buf(&mut piece).await? > 0 {
        sum.update(&piece);
        piece.clear();
    }
    let digits = sum
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok(digits)
}
