//! What io_uring offers here.

use super::Capability;
use crate::sys;

/// What io_uring offers here: learnt from rings that were made for the question and closed again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ring {
    /// `IORING_SETUP_SINGLE_ISSUER` (6.0): only one thread submits.
    pub single_issuer: Capability,
    /// `IORING_SETUP_DEFER_TASKRUN` (6.1): completions are worked on when they are waited for.
    pub defer_taskrun: Capability,
    /// `IORING_SETUP_SQPOLL`: a kernel thread takes submissions. Engines make none unasked.
    pub sqpoll: Capability,
    /// `IORING_SETUP_IOPOLL`: completions of O_DIRECT reads and writes are polled for.
    pub iopoll: Capability,
    /// `IORING_FEAT_EXT_ARG` (5.11): waits with a timeout. Engines use no ring without it.
    pub ext_arg: bool,
    /// `IORING_FEAT_NODROP` (5.5): no completion is lost. Engines use no ring without it.
    pub nodrop: bool,
    /// Each operation of [`op`](crate::op) by its name, and whether the ring does it. What it does
    /// not, workers do.
    pub operations: Vec<(&'static str, bool)>,
}

impl Ring {
    /// Tries each. `None` where no ring is to be had at all ([`Kernel::io_uring`](super::Kernel::io_uring) says why).
    ///
    /// ```
    /// match nowait::kernel::Ring::probe() {
    ///     Some(ring) => println!("deferred task work: {}", ring.defer_taskrun),
    ///     None => println!("no ring: {}", nowait::kernel::Kernel::get().io_uring),
    /// }
    /// ```
    pub fn probe() -> Option<Ring> {
        let ring = sys::ring::build(&io_uring::IoUring::builder(), 2).ok()?;
        let mut known = io_uring::Probe::new();
        let probed = ring.submitter().register_probe(&mut known).is_ok();
        let with = |set: fn(&mut io_uring::Builder)| {
            let mut builder = io_uring::IoUring::builder();
            set(&mut builder);
            Capability::from_io(sys::ring::build(&builder, 2).map(drop))
        };
        Some(Ring {
            single_issuer: with(|b| {
                b.setup_single_issuer();
            }),
            defer_taskrun: with(|b| {
                b.setup_single_issuer().setup_defer_taskrun();
            }),
            sqpoll: with(|b| {
                b.setup_sqpoll(1);
            }),
            iopoll: with(|b| {
                b.setup_iopoll();
            }),
            ext_arg: ring.params().is_feature_ext_arg(),
            nodrop: ring.params().is_feature_nodrop(),
            operations: crate::op::ALL
                .iter()
                .map(|&(name, code)| (name, probed && known.is_supported(code)))
                .collect(),
        })
    }
}
