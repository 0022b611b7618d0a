//! The three tables, with their depths, blocks and batches.

use clap::ValueEnum;

use super::contender::Name;

/// One of the tables of 2019.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Table {
    /// Operations of 4K, up to 8 in flight: their latency
    Latency,
    /// Operations of 512 bytes, up to 64 in flight: their number per second
    Peak,
    /// Operations of 4K, 128 in flight over four files or devices, by one thread on one core
    PerCore,
}

impl Table {
    /// The bytes of one operation, if the device has blocks of this size.
    pub fn block(self) -> u64 {
        match self {
            Table::Latency | Table::PerCore => 4096,
            Table::Peak => 512,
        }
    }

    /// The numbers of operations in flight.
    pub fn depths(self) -> &'static [usize] {
        match self {
            Table::Latency => &[1, 2, 4, 8],
            Table::Peak => &[4, 8, 16, 32, 64],
            Table::PerCore => &[128],
        }
    }

    /// How many completions one call waits for: one in the table of latencies.
    pub fn batch(self, depth: usize) -> usize {
        match self {
            Table::Latency => 1,
            Table::Peak | Table::PerCore => (depth / 4).max(1),
        }
    }

    /// True for the table of several files or devices on one core.
    pub fn per_core(self) -> bool {
        self == Table::PerCore
    }

    /// True if a contender is measured at this depth.
    pub fn has(self, name: Name, depth: usize) -> bool {
        match name {
            // psync has one depth.
            Name::Psync => depth == 1 || self.per_core(),
            // The kernel's thread uses a second core.
            Name::LocalSqpoll | Name::FioIoUringSqpoll => !self.per_core(),
            _ => true,
        }
    }
}
