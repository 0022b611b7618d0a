//! The machine, and what its kernel and this process's sandbox allow.

use nowait::kernel::{Kernel, Ring};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::process::{Resource, getrlimit};

use super::report::{Fact, Facts, Machine};

/// Information, none of which decides anything.
pub fn machine() -> Machine {
    let uname = rustix::system::uname();
    let sysctl = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    Machine {
        release: uname.release().to_string_lossy().into_owned(),
        arch: uname.machine().to_string_lossy().into_owned(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        page_size: rustix::param::page_size(),
        memlock: getrlimit(Resource::Memlock).current,
        nofile: getrlimit(Resource::Nofile).current,
        io_uring_disabled: sysctl.ok().and_then(|s| s.trim().parse().ok()),
    }
}

/// Every call that the library builds on, tried.
pub fn kernel() -> Facts {
    let known = Kernel::get();
    let statx = rustix::fs::statx(CWD, ".", AtFlags::empty(), StatxFlags::BASIC_STATS);
    let openat2 = rustix::fs::openat2(
        CWD,
        ".",
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::empty(),
    );
    let mut facts = vec![
        Fact::capability("preadv2", "preadv2", known.preadv2),
        Fact::capability("pwritev2", "pwritev2", known.pwritev2),
        Fact::capability("cachestat", "cachestat", known.cachestat),
        Fact::tried("statx", "statx", statx),
        Fact::tried("openat2", "openat2", openat2),
        Fact::capability("io_uring", "io_uring", known.io_uring),
    ];
    if let Some(ring) = Ring::probe() {
        facts.extend(ring_facts(&ring));
    }
    Facts(facts)
}

fn ring_facts(ring: &Ring) -> Vec<Fact> {
    let capability = |key, label, what| Fact::capability(key, label, what);
    let feature = |key, label, has: bool| {
        if has {
            Fact::yes(key, label)
        } else {
            Fact::no(
                key,
                label,
                "not in this kernel; engines use no ring without",
            )
        }
    };
    let mut facts = vec![
        capability(
            "io_uring_single_issuer",
            "  SINGLE_ISSUER",
            ring.single_issuer,
        ),
        capability(
            "io_uring_defer_taskrun",
            "  DEFER_TASKRUN",
            ring.defer_taskrun,
        ),
        feature("io_uring_ext_arg", "  EXT_ARG", ring.ext_arg),
        feature("io_uring_nodrop", "  NODROP", ring.nodrop),
        capability("io_uring_sqpoll", "  SQPOLL", ring.sqpoll).noting("never used unasked"),
        capability("io_uring_iopoll", "  IOPOLL", ring.iopoll).noting("a ring can be made with it"),
    ];
    facts.extend(ring.operations.iter().map(|&(name, has)| {
        let key = format!("io_uring_op_{name}");
        if has {
            Fact::yes(key, name)
        } else {
            Fact::no(key, name, "not in this kernel's ring; workers do it")
        }
    }));
    facts
}
