//! Tests that only a ring can run, and chains, which only a ring takes.

use nowait::Ticket;
use nowait::engine::{Backend, Chain, Options, RefusedChain};

use super::backends::backends;
use super::drive::Drive;
use super::either::on_either;
use super::kinds::{AnyKind, odd_rings, plain};

/// Chains of operations.
pub trait Chains: Drive {
    fn submit_chain(&mut self, chain: Chain) -> Result<Vec<Ticket>, RefusedChain> {
        on_either!(self.engine_mut(), submit_chain(chain))
    }
}

impl<D: Drive + ?Sized> Chains for D {}

/// Runs a test on rings of all kinds.
pub fn each_ring(options: Options, test: impl Fn(&mut dyn AnyKind)) {
    if backends()[0] == Backend::Threads {
        return;
    }
    plain(Backend::Uring, &options, &test);
    odd_rings(options, test);
}
