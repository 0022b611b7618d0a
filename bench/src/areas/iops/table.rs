//! The three tables, and what is measured for them.

use clap::ValueEnum;
use serde::Serialize;

use super::contender::Name;

/// One of the seed's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Table {
    /// 4K, few in flight: how long does each take?
    Latency,
    /// 512 bytes, more in flight: how many in a second?
    Peak,
    /// 4K, 128 in flight over several files or devices, by one thread on one core
    PerCore,
}

impl Table {
    /// A stable word.
    pub fn word(self) -> &'static str {
        match self {
            Table::Latency => "latency",
            Table::Peak => "peak",
            Table::PerCore => "per-core",
        }
    }

    /// The bytes of one operation, where there are such small blocks.
    pub fn block(self) -> u64 {
        match self {
            Table::Latency | Table::PerCore => 4096,
            Table::Peak => 512,
        }
    }

    /// How many are in flight.
    pub fn depths(self) -> &'static [usize] {
        match self {
            Table::Latency => &[1, 2, 4, 8],
            Table::Peak => &[4, 8, 16, 32, 64],
            Table::PerCore => &[128],
        }
    }

    /// How many are submitted at once, and waited for: of few, each as soon as may be.
    pub fn batch(self, depth: usize) -> usize {
        match self {
            Table::Latency => 1,
            Table::Peak | Table::PerCore => (depth / 4).max(1),
        }
    }

    /// Whether it is of several files or devices, and one core.
    pub fn per_core(self) -> bool {
        self == Table::PerCore
    }

    /// Whether a contender has something to say at this depth.
    pub fn has(self, name: Name, depth: usize) -> bool {
        match name {
            // It has but one depth.
            Name::Psync => depth == 1 || self.per_core(),
            // The kernel's thread takes a second core.
            Name::LocalSqpoll | Name::FioIoUringSqpoll => !self.per_core(),
            _ => true,
        }
    }
}
