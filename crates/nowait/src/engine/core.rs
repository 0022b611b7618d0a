//! The state that all parts of one engine share.

use std::sync::Arc;

use once_cell::race::OnceBox;

use super::class::Class;
use super::deadlines::Deadlines;
use super::features::{Feature, Features};
use super::file_set::FileSet;
use super::options::Options;
use super::semaphore::Semaphore;
use crate::error::{Error, ErrorKind, Result};
use crate::handle::Handle;
use crate::kernel::support::Support;
use crate::op::Kind;
use crate::policy::Policy;
use crate::policy::congestion::Congestion;
use crate::policy::cost::Observed;
use crate::policy::stats::Counters;
use crate::sys::process::Owner;
use crate::sys::sync::atomic::{AtomicBool, Ordering};

/// The state that all parts of one engine share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) policy: Policy,
    features: OnceBox<Features>,
    /// The support for registered files, which are tried later than the other features.
    registered_files: OnceBox<Support>,
    /// True if the engine's one set of files was made.
    has_files: AtomicBool,
    /// The permits of each class.
    permits: [Semaphore; Class::ALL.len()],
    /// Limits the readaheads and evictions in flight, which nothing waits for. The limit is the
    /// engine's depth.
    pub(super) aheads: Semaphore,
    pub(super) deadlines: Arc<Deadlines>,
    pub(super) process: Owner,
}

impl Core {
    pub(super) fn new(options: &Options) -> Core {
        Core {
            policy: Policy {
                counters: Counters::default(),
                observed: Observed::default(),
                congestion: Congestion::new(),
                mode: options.mode,
                nowait: options.nowait,
                copy_limit: options.copy_limit,
                polled: options.ring.polled.is_some(),
                is_timed: true,
            },
            features: OnceBox::new(),
            registered_files: OnceBox::new(),
            has_files: AtomicBool::new(false),
            permits: Class::ALL.map(|_| Semaphore::new(options.depth)),
            aheads: Semaphore::new(options.depth),
            deadlines: Arc::default(),
            process: Owner::current(),
        }
    }

    /// The support for a feature of the ring.
    pub(super) fn support(&self, feature: Feature) -> Support {
        match (feature, self.registered_files.get()) {
            (Feature::RegisteredFiles, Some(files)) => *files,
            _ => self
                .features
                .get()
                .map_or(Support::Untried, |features| features.get(feature)),
        }
    }

    /// Stores the features of the ring. Without a ring, each is refused with ENXIO.
    pub(super) fn set_features(&self, ring: Option<Features>) {
        let features = ring.unwrap_or_else(|| Features::all(Support::No(libc::ENXIO)));
        let _ = self.features.set(Box::new(features));
    }

    /// Makes the engine's set of files. `register` registers it with the ring, or returns `None` if there is none.
    pub(super) fn file_set(
        &self,
        set: Result<FileSet>,
        register: impl FnOnce(&FileSet) -> Option<std::io::Result<()>>,
    ) -> Result<FileSet> {
        self.check_process("file_set")?;
        let set = set?;
        if self.has_files.swap(true, Ordering::Relaxed) {
            let what = "file_set (the engine has a set already)";
            return Err(Error::new(what, ErrorKind::InvalidInput));
        }
        let no_ring = || Err(std::io::Error::from_raw_os_error(libc::ENXIO));
        let registered = register(&set).unwrap_or_else(no_ring);
        if registered.is_err() {
            set.table().close();
        }
        let files = Support::from_io(&registered);
        let _ = self.registered_files.set(Box::new(files));
        Ok(set)
    }

    /// The reason why an operation is invalid or not possible on this engine. A polled engine
    /// refuses all reads of a file without O_DIRECT, even if the page cache could serve some of
    /// them.
    #[inline(always)]
    pub(super) fn refuses(&self, kind: &Kind) -> Option<ErrorKind> {
        if !kind.is_transfer() {
            return None;
        }
        match kind.handle().is_some_and(Handle::is_direct) {
            true => kind.misaligned(),
            false => self.policy.polled.then_some(ErrorKind::NeedsDirect),
        }
    }

    pub(super) fn permits(&self, class: Class) -> &Semaphore {
        &self.permits[class as usize]
    }

    /// The number of operations of a class that may be in flight.
    pub(super) fn depth(&self) -> usize {
        self.permits(Class::File).depth()
    }

    /// The number of operations in flight on a shared engine.
    pub(super) fn in_flight(&self) -> usize {
        self.permits.iter().map(Semaphore::in_use).sum()
    }

    /// Returns an error in a forked child, which has neither the threads nor the ring of the
    /// engine.
    pub(super) fn check_process(&self, operation: &'static str) -> Result<()> {
        if self.process.is_here() {
            Ok(())
        } else {
            Err(Error::new(operation, ErrorKind::Forked))
        }
    }
}
