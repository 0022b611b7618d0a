//! A file with `keep_cache` does not rely on surveys that are old.

use super::*;

/// Longer than a survey of a window without pages to evict is used.
const LONG_AGO: Duration = Duration::from_millis(1500);

/// Reads enough windows that the second one is evicted.
fn pass_the_second_window(file: &File, sample: &Sample) {
    for window in 0..12 {
        check(file, sample, window * 8 * MIB, 1 << 20);
    }
    let mut windows = (3..15).cycle();
    wait_until("the second window is evicted", || {
        let second = (8 * MIB / PAGE)..(16 * MIB / PAGE);
        let is_evicted = seen(&sample.path).range(second).next().is_none();
        // A window of which pages stayed is evicted again when another one is.
        if !is_evicted {
            let window = windows.next().unwrap();
            check(file, sample, window * 8 * MIB, 1 << 20);
        }
        is_evicted
    });
}

#[test]
fn pages_that_others_read_after_an_eviction_stay_also_after_a_future_was_dropped() {
    for filesystem in filesystems() {
        let Some((_mount, sample)) = sample(filesystem, 128 * MIB) else {
            continue;
        };
        for backend in backends() {
            let _limit = Limit::new(format!("{filesystem} {backend}"));
            let engine = Options::new().backend(backend).build().expect("an engine");
            sample.evict();
            let file = open(&engine, &sample.path, false);
            let mut read = Box::pin(file.read_at(vec![0; 1 << 20], 120 * MIB));
            let mut context = Context::from_waker(Waker::noop());
            let _ = read.as_mut().poll(&mut context);
            drop(read);
            pass_the_second_window(&file, &sample);
            wait_until("the read is complete", || engine.in_flight() == 0);
            // mincore(2) does not report pages that are being read, so the survey is used again
            // for a while.
            if filesystem == Filesystem::Overlay {
                std::thread::sleep(LONG_AGO);
            }
            let other = sample.open();
            let mut room = vec![0; 8 * MIB as usize];
            other.read_exact_at(&mut room, 8 * MIB).expect("read");
            check(&file, &sample, 8 * MIB, PAGE as usize);
            drop(file);
            assert_kept(&sample, &(8 * MIB / PAGE..16 * MIB / PAGE).collect());
        }
    }
}

#[test]
fn a_window_that_was_resident_and_was_evicted_by_others_is_left_evicted() {
    each(8 * MIB, |sample, engine, _| {
        let all = (0..8 * MIB / PAGE).collect();
        arrange(sample, &all);
        let file = open(engine, &sample.path, false);
        check(&file, sample, 0, 1 << 20);
        sample.evict();
        std::thread::sleep(LONG_AGO);
        check(&file, sample, 0, 1 << 20);
        drop(file);
        assert_kept(sample, &BTreeSet::new());
    });
}
