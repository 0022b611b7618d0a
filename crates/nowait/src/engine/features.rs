//! The optional features of a ring, and the support for each.

use std::{fmt, io};

use crate::kernel::support::Support;

/// An optional feature of a ring, with the Linux version that introduced it.
/// [`Engine::support`](super::Engine::support) tells if an engine has it.
///
/// ```
/// use nowait::engine::{Feature, LocalEngine};
/// let engine = LocalEngine::new()?;
/// for feature in Feature::ALL {
///     println!("{feature}: {}", engine.support(feature));
/// }
/// assert!(!engine.support(Feature::Sqpoll).is_yes(), "it was not requested");
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Completions are polled for: `IORING_SETUP_IOPOLL` (5.1).
    Polled,
    /// Polling begins after half of the usual time: `IORING_SETUP_HYBRID_IOPOLL` (6.13).
    HybridPolled,
    /// A kernel thread polls the submission queue: `IORING_SETUP_SQPOLL` (5.1; without privileges
    /// since 5.13).
    Sqpoll,
    /// The ring is entered by a registered number instead of its descriptor (5.18).
    RegisteredRing,
    /// A [`FileSet`](super::FileSet) (5.19).
    RegisteredFiles,
    /// The memory of a [`BufferPool`](crate::buffer::BufferPool) (5.1).
    RegisteredBuffers,
    /// One system call waits as described at [`Wait::Batch`](super::Wait::Batch) (6.12).
    MinWait,
    /// Limits for the kernel's own workers (5.15).
    RingWorkers,
}

impl Feature {
    /// All features.
    pub const ALL: [Feature; 8] = [
        Feature::Polled,
        Feature::HybridPolled,
        Feature::Sqpoll,
        Feature::RegisteredRing,
        Feature::RegisteredFiles,
        Feature::RegisteredBuffers,
        Feature::MinWait,
        Feature::RingWorkers,
    ];
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Feature::Polled => "polled",
            Feature::HybridPolled => "hybrid polled",
            Feature::Sqpoll => "sqpoll",
            Feature::RegisteredRing => "registered ring",
            Feature::RegisteredFiles => "registered files",
            Feature::RegisteredBuffers => "registered buffers",
            Feature::MinWait => "minimum wait",
            Feature::RingWorkers => "ring worker limits",
        })
    }
}

/// The features of one ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features([Support; Feature::ALL.len()]);

impl Features {
    /// The same for every feature.
    pub(super) fn all(support: Support) -> Features {
        Features([support; Feature::ALL.len()])
    }

    pub(super) fn set(&mut self, feature: Feature, support: Support) {
        self.0[feature as usize] = support;
    }

    /// Records the result of an attempt.
    pub(super) fn tried<T>(&mut self, feature: Feature, tried: io::Result<T>) -> Option<T> {
        self.set(feature, Support::from_io(&tried));
        tried.ok()
    }

    pub(super) fn get(&self, feature: Feature) -> Support {
        self.0[feature as usize]
    }

    pub(super) fn has(&self, feature: Feature) -> bool {
        self.get(feature).is_yes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_has_its_own_index() {
        for (at, feature) in Feature::ALL.into_iter().enumerate() {
            assert_eq!(feature as usize, at);
        }
    }
}
