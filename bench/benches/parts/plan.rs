//! The decision how a read is served.

use criterion::Criterion;
use nowait::Mode::{Eager, Strict};
use nowait::internals::plan;
use nowait::read::CacheDecision::{Skip, Try};
use nowait::read::{Plan, Reason};

pub fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan");
    for (name, len, mode, decision, expected) in [
        ("eager", 4096, Eager, Try, Plan::CacheFirst),
        ("strict", 4096, Strict, Try, Plan::AskFirst),
        ("skip", 4096, Eager, Skip, Plan::Queue(Reason::LowHitRate)),
        ("large", 1 << 20, Eager, Try, Plan::Queue(Reason::Large)),
    ] {
        assert_eq!(plan(len, mode, decision), expected);
        group.bench_function(name, |b| b.iter(|| plan(len, mode, decision)));
    }
    group.finish();
}
