//! Temporary directories that are removed even if the process is killed.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{Doing, Result};
use crate::janitor::Claim;

/// A new directory. Drop removes it with its contents.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: TempDir,
    /// Dropped after the directory is removed.
    _claim: Claim,
}

/// A new directory in /tmp that every user may read. It is removed when this process has ended.
///
/// # Errors
/// It cannot be made.
pub fn directory_until_exit() -> Result<PathBuf> {
    let scratch = Scratch::new(Some(Path::new("/tmp")))?;
    let path = scratch.path().to_owned();
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, all).doing(|| format!("opening {}", path.display()))?;
    // The janitor removes it.
    std::mem::forget(scratch);
    Ok(path)
}

impl Scratch {
    /// Makes a directory in `parent`, or in the default directory for temporary files.
    pub(crate) fn new(parent: Option<&Path>) -> Result<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, PathBuf::from);
        let dir = tempfile::Builder::new()
            .prefix("slowdisk-")
            .tempdir_in(&parent)
            .doing(|| format!("making a directory in {}", parent.display()))?;
        let claim = Claim::discard(dir.path())?;
        Ok(Scratch { dir, _claim: claim })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Makes a subdirectory.
    pub(crate) fn subdir(&self, name: &str) -> Result<PathBuf> {
        let path = self.path().join(name);
        std::fs::create_dir(&path).doing(|| format!("making {}", path.display()))?;
        Ok(path)
    }
}
