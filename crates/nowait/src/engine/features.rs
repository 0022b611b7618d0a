//! The ring features of an engine, with the reasons for those that are missing.

use std::fmt;

/// An optional feature of a ring, with the Linux version that introduced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Completions are polled for: `IORING_SETUP_IOPOLL` (5.1).
    Polled,
    /// Polling begins after half of the usual time: `IORING_SETUP_HYBRID_IOPOLL` (6.13).
    HybridPolled,
    /// A kernel thread takes submissions: `IORING_SETUP_SQPOLL` (5.1; without privileges since
    /// 5.13).
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

    /// The name of the feature, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Feature::Polled => "polled",
            Feature::HybridPolled => "hybrid polled",
            Feature::Sqpoll => "sqpoll",
            Feature::RegisteredRing => "registered ring",
            Feature::RegisteredFiles => "registered files",
            Feature::RegisteredBuffers => "registered buffers",
            Feature::MinWait => "minimum wait",
            Feature::RingWorkers => "ring worker limits",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The availability of a feature on an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Availability {
    /// The engine has the feature.
    Available,
    /// The feature was not requested.
    NotAsked,
    /// The feature was tried and is not available, with the reason. The engine works without it.
    Lacking(String),
}

impl Availability {
    /// The availability that follows from an attempt.
    pub(super) fn of<T, E: fmt::Display>(tried: &Result<T, E>) -> Availability {
        match tried {
            Ok(_) => Availability::Available,
            Err(e) => Availability::Lacking(e.to_string()),
        }
    }
}

/// The features of an engine. [`Engine::features`](super::Engine::features) returns the state at
/// that moment: files are registered later than the rest.
///
/// ```
/// use nowait::engine::{Feature, LocalEngine};
/// let engine = LocalEngine::new()?;
/// for (feature, state) in engine.features().iter() {
///     println!("{feature}: {state:?}");
/// }
/// assert!(!engine.features().has(Feature::Sqpoll), "it was not requested");
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features([Availability; Feature::ALL.len()]);

impl Features {
    /// The state before any feature was requested.
    pub(super) fn none() -> Features {
        Features([const { Availability::NotAsked }; Feature::ALL.len()])
    }

    /// The state of an engine without a ring. `why` is the reason why there is no ring.
    pub(super) fn without_a_ring(why: &str) -> Features {
        Features(std::array::from_fn(|_| Availability::Lacking(why.into())))
    }

    pub(super) fn set(&mut self, feature: Feature, state: Availability) {
        self.0[feature as usize] = state;
    }

    /// Records the result of an attempt.
    pub(super) fn tried<T, E: fmt::Display>(
        &mut self,
        feature: Feature,
        tried: Result<T, E>,
    ) -> Option<T> {
        self.set(feature, Availability::of(&tried));
        tried.ok()
    }

    /// The availability of a feature.
    pub fn get(&self, feature: Feature) -> &Availability {
        &self.0[feature as usize]
    }

    /// Returns true if the engine has the feature.
    pub fn has(&self, feature: Feature) -> bool {
        *self.get(feature) == Availability::Available
    }

    /// The reason why the feature is not available although it was requested.
    pub fn why_not(&self, feature: Feature) -> Option<&str> {
        match self.get(feature) {
            Availability::Lacking(why) => Some(why),
            _ => None,
        }
    }

    /// All features with their availability.
    pub fn iter(&self) -> impl Iterator<Item = (Feature, &Availability)> {
        Feature::ALL.into_iter().zip(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_has_its_own_place() {
        for (at, feature) in Feature::ALL.into_iter().enumerate() {
            assert_eq!(feature as usize, at);
        }
    }
}
