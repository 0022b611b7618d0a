//! The io_uring features of this kernel and sandbox.

use super::restrictions;
use crate::kernel::support::Support;
use crate::sys;

/// The io_uring features of this kernel and sandbox. They are found by making rings, which are
/// closed again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RingSupport {
    /// `IORING_SETUP_SINGLE_ISSUER` (6.0): only one thread submits.
    pub single_issuer: Support,
    /// `IORING_SETUP_DEFER_TASKRUN` (6.1): completions are processed when the thread waits for
    /// them.
    pub defer_taskrun: Support,
    /// `IORING_SETUP_SQPOLL`: a kernel thread takes submissions. Engines use it only on request.
    pub sqpoll: Support,
    /// `IORING_SETUP_IOPOLL`: completions of O_DIRECT reads and writes are polled for.
    pub iopoll: Support,
    /// `IORING_FEAT_EXT_ARG` (5.11): waits with a timeout. Engines use no ring without it.
    pub ext_arg: bool,
    /// `IORING_FEAT_NODROP` (5.5): no completion is lost. Engines use no ring without it.
    pub nodrop: bool,
    /// The name of each operation of [`op`](crate::op), and true if the ring supports it, and
    /// a sandbox allows it (Linux 7.0 has restrictions of a task). Workers do the others.
    pub operations: Vec<(&'static str, bool)>,
}

impl RingSupport {
    /// Tries each feature. Returns `None` if no ring can be made.
    /// ([`Kernel::io_uring`](crate::kernel::support::Kernel::io_uring) has the reason.)
    ///
    /// ```
    /// match nowait::engine::RingSupport::probe() {
    ///     Some(ring) => println!("deferred task work: {}", ring.defer_taskrun),
    ///     None => println!("no ring: {}", nowait::support::Kernel::get().io_uring),
    /// }
    /// ```
    pub fn probe() -> Option<RingSupport> {
        let mut ring = sys::ring::build(&io_uring::IoUring::builder(), 2).ok()?;
        let mut known = io_uring::Probe::new();
        let probed = ring.submitter().register_probe(&mut known).is_ok();
        let with = |set: fn(&mut io_uring::Builder) -> &mut io_uring::Builder| {
            Support::from_io(&sys::ring::build(set(&mut io_uring::IoUring::builder()), 2))
        };
        Some(RingSupport {
            single_issuer: with(|b| b.setup_single_issuer()),
            defer_taskrun: with(|b| b.setup_single_issuer().setup_defer_taskrun()),
            sqpoll: with(|b| b.setup_sqpoll(1)),
            iopoll: with(|b| b.setup_iopoll()),
            ext_arg: ring.params().is_feature_ext_arg(),
            nodrop: ring.params().is_feature_nodrop(),
            operations: crate::op::ALL
                .iter()
                .map(|&(name, code)| {
                    let supports = probed && known.is_supported(code);
                    (name, supports && !restrictions::is_denied(&mut ring, code))
                })
                .collect(),
        })
    }
}
