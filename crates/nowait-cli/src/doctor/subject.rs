//! The file that things are tried on: a temporary one where the user's files are, or, where none
//! can be made, the user's own file, which is then only read.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nowait::filesystem::Filesystem;
use rustix::fs::{Advice, AtFlags, CWD, Mode, OFlags, StatxFlags};

/// How many pages a temporary file has: enough for some hundred cold reads, few enough to write
/// within a moment.
const PAGES: u64 = 512;

/// What is examined.
pub struct Subject {
    /// As the user named it.
    pub path: PathBuf,
    /// The path itself, open for reading if it may be.
    given: Option<File>,
    /// What things are tried on.
    pub on: On,
    handle: Option<nowait::Handle>,
}

/// What things are tried on.
pub enum On {
    /// A temporary file of ours: it may be written and evicted.
    Temporary(File, PathBuf),
    /// The path itself, and why no temporary file.
    Itself(String),
    /// Nothing, and why.
    Nothing(String),
}

impl Subject {
    /// Finds out what can be tried for `path`. Fails if there is no such file or directory.
    pub fn find(path: &Path) -> Result<Subject, String> {
        let real = path.canonicalize().map_err(|e| {
            let hint = match e.kind() {
                std::io::ErrorKind::NotFound => "name a file or directory that exists",
                _ => "name one that you may reach",
            };
            format!("{}: {e}; {hint}", path.display())
        })?;
        let meta = real
            .metadata()
            .map_err(|e| format!("{}: {e}; name one that you may reach", path.display()))?;
        if !meta.is_file() && !meta.is_dir() {
            return Err(format!(
                "{}: neither a file nor a directory; name one of those",
                path.display()
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
                .map_err(|e| format!("no temporary file can be made in {}: {e}", dir.display()))
        } else {
            Err("it is mounted by itself, its directory lies elsewhere".into())
        };
        let on = match (temporary, &given) {
            (Ok(file), _) => On::Temporary(file, dir.to_owned()),
            (Err(why), Ok(_)) if meta.is_file() => On::Itself(why),
            (Err(why), Err(e)) if meta.is_file() => {
                On::Nothing(format!("{why}; and {} can't be read: {e}", path.display()))
            }
            (Err(why), _) => On::Nothing(format!("{why}; name a file there that you may read")),
        };
        // To know where a path lies one need not be allowed to read it.
        let identity = match &on {
            On::Temporary(file, _) => file.try_clone().ok().map(OwnedFd::from),
            _ => rustix::fs::open(&real, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok(),
        };
        Ok(Subject {
            path: path.to_owned(),
            handle: identity.and_then(|fd| nowait::Handle::new(fd).ok()),
            given: given.ok(),
            on,
        })
    }

    /// The file to try things on, and whether it is ours to write and evict.
    pub fn file(&self) -> Option<(&File, bool)> {
        match &self.on {
            On::Temporary(file, _) => Some((file, true)),
            On::Itself(_) => self.given.as_ref().map(|file| (file, false)),
            On::Nothing(_) => None,
        }
    }

    /// The file whose reads the library is to plan: the user's own, if it is one.
    pub fn planned(&self) -> Option<&File> {
        let given = self.given.as_ref();
        given
            .filter(|f| f.metadata().is_ok_and(|m| m.is_file()))
            .or(self.file().map(|(file, _)| file))
    }

    /// What the library knows of its filesystem.
    pub fn filesystem(&self) -> Option<&Filesystem> {
        self.handle.as_ref().map(nowait::Handle::filesystem)
    }
}

/// A file without a name, full of what no filesystem compresses, on its device.
fn temporary(dir: &Path) -> std::io::Result<File> {
    let mut file = tempfile::tempfile_in(dir)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut page = vec![0; rustix::param::page_size()];
    for _ in 0..PAGES {
        for word in page.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_ne_bytes());
        }
        file.write_all(&page)?;
    }
    file.sync_data()?;
    // One read is to bring one page, so that many cold ones can be made.
    let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
    Ok(file)
}

/// Whether two paths lie on the same mount (a container may mount a single file). Kernels that do
/// not say are taken at the device number's word.
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
