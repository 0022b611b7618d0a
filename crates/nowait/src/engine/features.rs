//! What an engine has of what a ring can offer, and why it has not the rest.

use std::fmt;

/// Something that a ring can offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Completions are polled for: `IORING_SETUP_IOPOLL` (5.1).
    Polled,
    /// Polling begins after half of the usual time: `IORING_SETUP_HYBRID_IOPOLL` (6.13).
    HybridPolled,
    /// A kernel thread takes submissions: `IORING_SETUP_SQPOLL` (5.1; for everybody since 5.13).
    Sqpoll,
    /// The ring is entered by a number of its thread's instead of its descriptor (5.18).
    RegisteredRing,
    /// A [`FileSet`](super::FileSet) (5.19).
    RegisteredFiles,
    /// The memory of a [`BufferPool`](crate::buffer::BufferPool) (5.1).
    RegisteredBuffers,
    /// One system call waits as [`Wait::Batch`](super::Wait::Batch) says (6.12).
    MinWait,
    /// Limits for the kernel's own workers (5.15).
    RingWorkers,
    /// Operations that wait for each other (5.3).
    Links,
}

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 9] = [
        Feature::Polled,
        Feature::HybridPolled,
        Feature::Sqpoll,
        Feature::RegisteredRing,
        Feature::RegisteredFiles,
        Feature::RegisteredBuffers,
        Feature::MinWait,
        Feature::RingWorkers,
        Feature::Links,
    ];

    /// Its name, for reports.
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
            Feature::Links => "links",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether an engine has a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Availability {
    /// It has.
    Available,
    /// Nobody has asked for it.
    NotAsked,
    /// It was tried, and this is why it is not to be had. The engine works without.
    Lacking(String),
}

impl Availability {
    /// What came of trying.
    pub(super) fn of<T, E: fmt::Display>(tried: &Result<T, E>) -> Availability {
        match tried {
            Ok(_) => Availability::Available,
            Err(e) => Availability::Lacking(e.to_string()),
        }
    }
}

/// Which features an engine has. What [`Engine::features`](super::Engine::features) returns is the
/// state at that moment: files are registered later than the rest.
///
/// ```
/// use nowait::engine::{Feature, LocalEngine};
/// let engine = LocalEngine::new()?;
/// for (feature, state) in engine.features().iter() {
///     println!("{feature}: {state:?}");
/// }
/// assert!(!engine.features().has(Feature::Sqpoll), "nobody asked for it");
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features([Availability; Feature::ALL.len()]);

impl Features {
    /// Nothing was asked for yet.
    pub(super) fn none() -> Features {
        Features([const { Availability::NotAsked }; Feature::ALL.len()])
    }

    /// An engine without a ring has none of them, and this is why there is no ring.
    pub(super) fn without_a_ring(why: &str) -> Features {
        Features(std::array::from_fn(|_| Availability::Lacking(why.into())))
    }

    pub(super) fn set(&mut self, feature: Feature, state: Availability) {
        self.0[feature as usize] = state;
    }

    /// Notes what came of trying.
    pub(super) fn tried<T, E: fmt::Display>(
        &mut self,
        feature: Feature,
        tried: Result<T, E>,
    ) -> Option<T> {
        self.set(feature, Availability::of(&tried));
        tried.ok()
    }

    /// What is known of one.
    pub fn get(&self, feature: Feature) -> &Availability {
        &self.0[feature as usize]
    }

    /// Whether the engine has it.
    pub fn has(&self, feature: Feature) -> bool {
        *self.get(feature) == Availability::Available
    }

    /// Why it was asked for and is not there.
    pub fn why_not(&self, feature: Feature) -> Option<&str> {
        match self.get(feature) {
            Availability::Lacking(why) => Some(why),
            _ => None,
        }
    }

    /// All of them.
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
