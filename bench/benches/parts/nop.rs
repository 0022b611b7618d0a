//! Submission and reaping of nops: by the thread that drives a ring, and through an engine's own thread.

use criterion::{Criterion, Throughput};
use nowait::engine::{Backend, LocalEngine, Submit, Wait};
use nowait::op::{Nop, Op};
use nowait::{Completion, Engine};

pub fn bench(criterion: &mut Criterion) {
    let mut local = LocalEngine::new().unwrap();
    let shared = Engine::new().unwrap();
    if [local.backend(), shared.backend()] != [Backend::Uring; 2] {
        eprintln!("nop: left out, there is no ring: {}", local.why());
        return;
    }
    let mut group = criterion.benchmark_group("nop");
    let (mut ops, mut done) = (Vec::new(), Vec::new());
    for batch in [1, 32] {
        let mut turn = |done: &mut Vec<Completion>| {
            done.clear();
            ops.extend((0..batch).map(|_| Op::from(Nop)));
            let reaped = local.submit_and_wait(&mut ops, done, Wait::For(batch));
            reaped.unwrap()
        };
        assert_eq!((turn(&mut done), succeeded(&done)), (batch, batch));
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_function(format!("LocalEngine/{batch}"), |b| {
            b.iter(|| turn(&mut done))
        });
    }
    let turn = |done: &mut Vec<Completion>| {
        done.clear();
        let submitted = shared.submit(Op::from(Nop));
        (submitted, shared.reap(done, Wait::For(1)).unwrap())
    };
    let (submitted, reaped) = turn(&mut done);
    assert!(matches!(submitted, Submit::Queued(_)));
    assert_eq!((reaped, succeeded(&done)), (1, 1));
    group.throughput(Throughput::Elements(1));
    group.bench_function("Engine/1", |b| b.iter(|| turn(&mut done)));
    group.finish();
}

fn succeeded(done: &[Completion]) -> usize {
    let nops = done.iter().filter(|c| matches!(c.result, Ok(0)));
    nops.filter(|c| c.op.name() == "nop").count()
}
