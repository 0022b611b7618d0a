//! The completion queue: 1, 2 or 4 threads add completions, and one thread reaps them.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use nowait::engine::Wait;
use nowait::internals::Completions;

/// The number of completions in the queue is limited, as the depth of an engine limits it.
const DEPTH: usize = 256;

pub fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("completions");
    group.throughput(Throughput::Elements(1));
    for threads in [1, 2, 4] {
        pass(threads, 1000);
        group.bench_function(format!("{threads} push, 1 reaps"), |b| {
            b.iter_custom(|count| pass(threads, count as usize));
        });
    }
    group.finish();
}

/// Passes completions through a queue, and returns the time until the last of them was reaped.
fn pass(threads: usize, count: usize) -> Duration {
    let queue = Completions::default();
    queue.expect(count);
    let start = Barrier::new(threads + 1);
    let reaped = AtomicUsize::new(0);
    let (mut got, mut done) = (0, Vec::with_capacity(DEPTH));
    let took = std::thread::scope(|scope| {
        for thread in 0..threads {
            let (queue, start, reaped) = (&queue, &start, &reaped);
            scope.spawn(move || {
                start.wait();
                for n in (thread..count).step_by(threads) {
                    while n >= reaped.load(Ordering::Relaxed) + DEPTH {
                        std::thread::yield_now();
                    }
                    assert!(queue.push());
                }
            });
        }
        start.wait();
        let began = Instant::now();
        while got < count {
            done.clear();
            got += queue.reap(&mut done, Wait::For(1));
            reaped.store(got, Ordering::Relaxed);
        }
        began.elapsed()
    });
    assert_eq!(got, count);
    took
}
