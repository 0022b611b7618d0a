//! The machine, and the features that its kernel and this process's sandbox allow.

use nowait::buffer::BufferPool;
use nowait::engine::{Backend, Feature, LocalEngine, Options, Polled, RingSupport};
use nowait::support::Kernel;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::process::{Resource, getrlimit};

use super::fact::{Fact, Facts};
use super::report::Machine;

/// The machine's properties. They are shown but not used for decisions.
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

/// Tries every system call that the library uses.
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
        Fact::support("preadv2", "preadv2", known.preadv2),
        Fact::support("pwritev2", "pwritev2", known.pwritev2),
        Fact::support("cachestat", "cachestat", known.cachestat),
        Fact::tried("statx", "statx", statx),
        Fact::tried("openat2", "openat2", openat2),
        Fact::support("io_uring", "io_uring", known.io_uring),
    ];
    if let Some(ring) = RingSupport::probe() {
        facts.extend(ring_facts(&ring));
    }
    Facts(facts)
}

fn ring_facts(ring: &RingSupport) -> Vec<Fact> {
    let feature = |key, label, has: bool| {
        if has {
            Fact::yes(key, label)
        } else {
            Fact::no(
                key,
                label,
                "not in this kernel; without it engines do not use a ring",
            )
        }
    };
    let mut facts = vec![
        Fact::support(
            "io_uring_single_issuer",
            "  SINGLE_ISSUER",
            ring.single_issuer,
        ),
        Fact::support(
            "io_uring_defer_taskrun",
            "  DEFER_TASKRUN",
            ring.defer_taskrun,
        ),
        feature("io_uring_ext_arg", "  EXT_ARG", ring.ext_arg),
        feature("io_uring_nodrop", "  NODROP", ring.nodrop),
        Fact::support("io_uring_sqpoll", "  SQPOLL", ring.sqpoll).noting("used only on request"),
        Fact::support("io_uring_iopoll", "  IOPOLL", ring.iopoll).noting("used only on request"),
    ];
    facts.extend(engine_facts());
    facts.extend(ring.operations.iter().map(|&(name, has)| {
        let key = format!("io_uring_op_{name}");
        if has {
            Fact::yes(key, name)
        } else {
            let why = "not in this kernel's io_uring, or a sandbox denies it; done by workers";
            Fact::no(key, name, why)
        }
    }));
    facts
}

/// The optional ring features, found by building small engines that request them.
fn engine_facts() -> Vec<Fact> {
    let plain = Options::new().depth(2).backend(Backend::Uring);
    let asking = match BufferPool::new(1, 4096) {
        Ok(pool) => plain.clone().ring_workers(0, 0).buffers(&pool),
        Err(_) => plain.clone().ring_workers(0, 0),
    };
    let hybrid = plain.polled(Polled::Hybrid);
    let fact = |key: &str, label: &str, feature: Feature, options: &Options| {
        let key = format!("io_uring_{key}");
        match engine(options) {
            Ok(engine) => Fact::support(&key, label, engine.support(feature)),
            Err(why) => Fact::no(key, label, why),
        }
    };
    vec![
        fact(
            "hybrid_iopoll",
            "  hybrid IOPOLL",
            Feature::HybridPolled,
            &hybrid,
        )
        .noting("used only on request"),
        fact(
            "registered_ring",
            "  registered ring",
            Feature::RegisteredRing,
            &asking,
        ),
        fact(
            "registered_files",
            "  registered files",
            Feature::RegisteredFiles,
            &asking,
        ),
        fact(
            "registered_buffers",
            "  registered memory",
            Feature::RegisteredBuffers,
            &asking,
        ),
        fact("min_wait", "  minimum wait", Feature::MinWait, &asking),
        fact(
            "iowq_limits",
            "  worker limits",
            Feature::RingWorkers,
            &asking,
        ),
    ]
}

/// An engine with these options and a set of registered files, or the error of making it.
fn engine(options: &Options) -> Result<LocalEngine, String> {
    let mut engine = options.build_local().map_err(|e| e.to_string())?;
    let _ = engine.file_set(1);
    Ok(engine)
}
