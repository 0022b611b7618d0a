//! A mount of a FUSE filesystem whose answers a test decides.

use std::path::{Path, PathBuf};

use fuser::{BackgroundSession, Config, Filesystem, SessionACL};

use crate::connection::Connection;
use crate::error::{Doing, Result};
use crate::janitor::Claim;
use crate::missing;
use crate::mount::take_down;
use crate::scratch::Scratch;

/// A mounted filesystem that a thread of this process serves. Drop unmounts it. Fields are dropped
/// in this order.
#[derive(Debug)]
pub(crate) struct ServedMount {
    connection: Connection,
    /// None during drop.
    session: Option<BackgroundSession>,
    path: PathBuf,
    _claim: Claim,
    _scratch: Scratch,
}

impl ServedMount {
    pub(crate) fn new(filesystem: impl Filesystem + 'static) -> Result<Self> {
        ServedMount::with_threads(filesystem, 1)
    }

    /// Mounts a filesystem that serves this many requests at a time.
    pub(crate) fn with_threads(
        filesystem: impl Filesystem + 'static,
        threads: usize,
    ) -> Result<Self> {
        missing::available()?;
        let scratch = Scratch::new(None)?;
        let path = scratch.subdir("fuse")?;
        let claim = Claim::unmount(&path)?;
        let mut config = Config::default();
        config.n_threads = Some(threads);
        // Tests ask as other users.
        config.acl = SessionACL::All;
        let session = fuser::spawn_mount(filesystem, &path, &config)
            .doing(|| format!("mounting FUSE on {}", path.display()))?;
        let connection = Connection::of(&path)
            .doing(|| "opening the control file of a FUSE connection".into())?;
        Ok(ServedMount {
            connection,
            session: Some(session),
            path,
            _claim: claim,
            _scratch: scratch,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ServedMount {
    fn drop(&mut self) {
        take_down(&self.path);
        self.connection.abort();
        if let Some(session) = self.session.take() {
            // Joins the server's thread. The mount is gone already.
            let _ = session.umount_and_join();
        }
    }
}
