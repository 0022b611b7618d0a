//! The results of all parts of a report.

use super::part::Part;
use super::proposals::Proposal;
use crate::harness::run::Run;

/// The results of all parts.
pub struct Report {
    /// In the order in which the parts are measured.
    pub parts: Vec<(&'static Part, Outcome)>,
}

/// The outcome of one part.
pub enum Outcome {
    Measured(Box<Run>),
    /// Left out; the reason.
    Skipped(String),
}

impl Report {
    /// The parts that were measured.
    pub fn measured(&self) -> impl Iterator<Item = (&'static Part, &Run)> {
        self.parts
            .iter()
            .filter_map(|(part, outcome)| match outcome {
                Outcome::Measured(run) => Some((*part, &**run)),
                Outcome::Skipped(_) => None,
            })
    }

    /// The runs of the parts that were measured.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.measured().map(|(_, run)| run)
    }

    /// The parts of a proposal, in its order.
    pub fn parts_of(&self, proposal: &Proposal) -> impl Iterator<Item = (&'static Part, &Outcome)> {
        let named = |name: &&str| self.parts.iter().find(|(part, _)| part.name == *name);
        proposal
            .parts
            .iter()
            .filter_map(named)
            .map(|(part, outcome)| (*part, outcome))
    }
}
