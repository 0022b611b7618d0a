//! The files of a bench: the one that is read, and the one that is written.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file that writes go to. It goes when the bench does.
pub struct Scratch {
    pub path: PathBuf,
}

/// Makes the file to read, unless it is there and has its size.
pub fn make(path: &Path, size: u64) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => {
            return Err(io::Error::other("not a regular file: name another --file"));
        }
        Ok(there) if there.len() >= size => return Ok(()),
        Ok(_) => {
            return Err(io::Error::other(
                "it is there and smaller than --size: name another --file, or a smaller --size",
            ));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    fill(path, size)
}

impl Scratch {
    /// Beside the file to read.
    pub fn beside(path: &Path, size: u64) -> io::Result<Scratch> {
        let mut name = path.as_os_str().to_owned();
        name.push(".write");
        let scratch = Scratch { path: name.into() };
        fill(&scratch.path, size)?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Writes bytes that no filesystem can leave out.
fn fill(path: &Path, size: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut block: Vec<u8> = (0..1u32 << 18)
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    let mut left = size;
    while left > 0 {
        block[0] = block[0].wrapping_add(1);
        let n = left.min(block.len() as u64);
        file.write_all(&block[..n as usize])?;
        left -= n;
    }
    file.sync_data()
}
