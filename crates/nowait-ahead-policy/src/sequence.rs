//! The order in which a program opens the files of a directory.
//!
//! A [`Sequence`] counts the steps of the program forwards and backwards: by inode number, by name, and in the listing.
//! The square of the difference is the number of files that may be read before the program opens them. A program that
//! picks files at random has a difference near 0.

/// The steps of a program from one file of a directory to the next.
#[derive(Debug, Default)]
pub struct Sequence {
    /// The number of steps forwards minus the number of steps backwards, by [`Order`].
    pub steps: [i64; 3],
}

/// An order of the files of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Inode,
    Name,
    Listing,
}

impl Sequence {
    /// The order that fits best, and the number of its steps.
    pub fn best(&self) -> (Order, u64) {
        let orders = [Order::Name, Order::Listing, Order::Inode];
        let best = orders.into_iter().max_by_key(|it| self.steps[*it as usize]);
        let best = best.unwrap_or(Order::Inode);
        (best, self.steps[best as usize].max(0).unsigned_abs())
    }

    /// The number of files that may be read and not used.
    pub fn ahead(&self) -> u64 {
        let steps = self.best().1;
        steps.saturating_mul(steps)
    }
}
