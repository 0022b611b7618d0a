//! checksum: prints the SHA-256 sums of files and of all files in directory trees. The output has the format
//! of sha256sum(1), so `sha256sum -c` can check it.
//!
//! ```sh
//! cargo run --release -p nowait-examples --bin checksum -- src Cargo.toml > sums
//! sha256sum -c sums
//! ```
//!
//! One task walks the trees. At most [`AT_ONCE`] files are read at the same time, each by its own task.
//! Cached data is read in the task; for other data, the reads of many files are in flight together. Lines
//! are printed in the order in which the files were found.

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

/// The maximum number of files that are read at the same time.
const AT_ONCE: usize = 64;
/// The size of a read in bytes.
const PIECE: usize = 128 << 10;

/// A file that was found, or an error message.
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

/// Sends the files that the arguments name, and all regular files below directories.
async fn find(roots: Vec<PathBuf>, tell: Sender<Found>) {
    for root in roots {
        let is_dir = metadata(&root).await.is_ok_and(|m| m.is_dir());
        let told = if is_dir {
            find_in(&root, &tell).await
        } else {
            // A missing file is reported when it is opened.
            tell.send(Ok(root)).await.is_ok()
        };
        if !told {
            return;
        }
    }
}

/// Sends all regular files of a tree. Returns false if the receiver was dropped.
async fn find_in(root: &Path, tell: &Sender<Found>) -> bool {
    let mut walk = match Walk::open(root).await {
        Ok(walk) => walk,
        Err(error) => return tell.send(Err(error.to_string())).await.is_ok(),
    };
    while let Some(batch) = walk.batch().await {
        let batch = match batch {
            Ok(batch) => batch,
            // A directory that cannot be listed. The walk continues with the others.
            Err(error) if tell.send(Err(error.to_string())).await.is_ok() => continue,
            Err(_) => return false,
        };
        for entry in batch.iter() {
            let path = batch.dir().path().join(entry.file_name());
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

/// The output line for a file.
async fn line(found: Found) -> Result<Vec<u8>, String> {
    let path = found?;
    let sum = sum(&path)
        .await
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let mut line = format!("{sum}  ").into_bytes();
    // As sha256sum does: a backslash before the line marks a name with escaped characters.
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
