//! The machine that figures were taken on, as far as it matters and identifies none.

use std::path::Path;

use serde::Serialize;

/// What a reader of the figures wants to know; nothing is decided by it.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// Its numbers, without what a vendor appends.
    pub kernel: String,
    pub arch: String,
    pub cores: usize,
    pub filesystem: Option<&'static str>,
}

impl Machine {
    pub fn look(file: &Path) -> Result<Machine, String> {
        let uname = rustix::system::uname();
        let release = uname.release().to_string_lossy();
        let open = std::fs::File::open(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let handle = nowait::Handle::new(open).map_err(|e| e.to_string())?;
        Ok(Machine {
            kernel: release.split('-').next().unwrap_or_default().to_owned(),
            arch: uname.machine().to_string_lossy().into_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            filesystem: handle.filesystem().name(),
        })
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let filesystem = self.filesystem.unwrap_or("a filesystem unknown here");
        write!(
            f,
            "Linux {}, {}, {} cores, {filesystem}",
            self.kernel, self.arch, self.cores
        )
    }
}
