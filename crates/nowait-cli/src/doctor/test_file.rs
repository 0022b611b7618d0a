//! The file for the checks: a temporary file in the user's directory. If it cannot be created, the
//! user's file is used, and it is only read.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nowait::filesystem::Filesystem;
use nowait::residency::page_size;
use rustix::fs::{Advice, AtFlags, CWD, Mode, OFlags, StatxFlags};

use crate::name::shown;
use crate::noise::Noise;

/// The number of pages of a temporary file: enough for some hundred cold reads, and few enough to
/// be written quickly.
const PAGES: u64 = 512;

/// The path given by the user, and the file for the checks.
pub struct TestFile {
    /// The path as the user gave it.
    pub path: PathBuf,
    /// The file at the path, if it could be opened for reading.
    given: Option<File>,
    /// The file for the checks.
    pub selected: Selected,
    handle: Option<nowait::Handle>,
}

/// The file for the checks.
pub enum Selected {
    /// A temporary file, and its directory. The file may be written and evicted.
    Temporary(File, PathBuf),
    /// The file at the path, and the reason why there is no temporary file.
    Given(String),
    /// No file, and the reason.
    None(String),
}

impl TestFile {
    /// Finds the file for the checks of `path`.
    ///
    /// # Errors
    /// If there is no file or directory at `path`.
    pub fn find(path: &Path) -> Result<TestFile, String> {
        let real = path.canonicalize().map_err(|e| {
            let hint = match e.kind() {
                std::io::ErrorKind::NotFound => "name a file or directory that exists",
                _ => "name one that you may access",
            };
            format!("{}: {e}; {hint}", shown(&path))
        })?;
        let meta = real
            .metadata()
            .map_err(|e| format!("{}: {e}; name one that you may access", shown(&path)))?;
        if !meta.is_file() && !meta.is_dir() {
            return Err(format!(
                "{}: neither a file nor a directory; name one of those",
                shown(&path)
            ));
        }
        let dir = if meta.is_dir() {
            &real
        } else {
            real.parent().unwrap_or(&real)
        };
        let given = File::open(&real);
        let temporary = if same_mount(&real, dir) {
            temporary(dir)
                .map_err(|e| format!("cannot create a temporary file in {}: {e}", shown(&dir)))
        } else {
            Err("the file is a mount point, and its directory is on another mount".into())
        };
        let selected = match (temporary, &given) {
            (Ok(file), _) => Selected::Temporary(file, dir.to_owned()),
            (Err(why), Ok(_)) if meta.is_file() => Selected::Given(why),
            (Err(why), Err(e)) if meta.is_file() => {
                Selected::None(format!("{why}; cannot read {}: {e}", shown(&path)))
            }
            (Err(why), _) => Selected::None(format!("{why}; name a readable file in it instead")),
        };
        // O_PATH finds the filesystem of a path without read permission.
        let identity = match &selected {
            Selected::Temporary(file, _) => file.try_clone().ok().map(OwnedFd::from),
            _ => rustix::fs::open(&real, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok(),
        };
        Ok(TestFile {
            path: path.to_owned(),
            handle: identity.and_then(|fd| nowait::Handle::new(fd).ok()),
            given: given.ok(),
            selected,
        })
    }

    /// The file for the checks, and true if it may be written and evicted.
    pub fn file(&self) -> Option<(&File, bool)> {
        match &self.selected {
            Selected::Temporary(file, _) => Some((file, true)),
            Selected::Given(_) => self.given.as_ref().map(|file| (file, false)),
            Selected::None(_) => None,
        }
    }

    /// The file whose reads the library plans: the user's file, otherwise the file for the checks.
    pub fn planned(&self) -> Option<&File> {
        let given = self.given.as_ref();
        given
            .filter(|f| f.metadata().is_ok_and(|m| m.is_file()))
            .or(self.file().map(|(file, _)| file))
    }

    /// The library's description of the path's filesystem.
    pub fn filesystem(&self) -> Option<&Filesystem> {
        self.handle.as_ref().map(nowait::Handle::filesystem)
    }
}

/// An unnamed file with incompressible data, written to its device.
fn temporary(dir: &Path) -> std::io::Result<File> {
    let mut file = tempfile::tempfile_in(dir)?;
    let mut noise = Noise::new(1);
    for _ in 0..PAGES {
        file.write_all(noise.bytes(page_size()))?;
    }
    file.sync_data()?;
    // Disables readahead, so that each read brings one page and many reads are cold.
    let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
    Ok(file)
}

/// Returns true if two paths are on the same mount. A container may mount a single file. On kernels
/// that do not report the mount ID, the device numbers are compared.
fn same_mount(one: &Path, other: &Path) -> bool {
    let ask = |path| rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID);
    match (ask(one), ask(other)) {
        (Ok(a), Ok(b)) if a.stx_mask & b.stx_mask & StatxFlags::MNT_ID.bits() != 0 => {
            a.stx_mnt_id == b.stx_mnt_id
        }
        (Ok(a), Ok(b)) => (a.stx_dev_major, a.stx_dev_minor) == (b.stx_dev_major, b.stx_dev_minor),
        _ => true,
    }
}
