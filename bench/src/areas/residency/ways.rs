//! The cost of three ways to read without waiting, under the same pressure: fincore and pread, a
//! NOWAIT read alone, and fincore before a NOWAIT read. The cost of a miss is the time until it is
//! known.

use std::time::Instant;

use nowait::residency::Probe;

use super::cell::{Paid, Place, Strict, Way};
use super::ground::{Ground, Refill, read_now, resident};
use crate::harness::percentiles::{histogram, nanoseconds, quantile};
use nowait_cli::problem::Problem;

/// The result of one read.
enum Got {
    Hit,
    Miss,
    Race,
}

/// Reads in one way for the time of a turn.
pub fn run(ground: &Ground, place: Place, way: Way) -> Result<Paid, Problem> {
    let file = ground.open(place.pattern)?;
    let probe = Probe::new(&file)?;
    let mut refill = Refill::start(ground.open(place.pattern)?, place.block);
    let mut buffer = vec![0; place.block as usize];
    let mut read = |offset| {
        if way != Way::Try && !resident(&probe, offset, place.block)? {
            return Ok(Got::Miss);
        }
        if way == Way::Ask {
            return match rustix::io::pread(&file, &mut buffer, offset) {
                Ok(_) => Ok(Got::Hit),
                Err(e) => Err(Problem::of("pread", e)),
            };
        }
        Ok(match (read_now(&file, &mut buffer, offset)?, way) {
            (true, _) => Got::Hit,
            (false, Way::Both) => Got::Race,
            (false, _) => Got::Miss,
        })
    };

    let mut paid = Paid::default();
    let (mut hits, mut misses) = (histogram(), histogram());
    let begun = Instant::now() + ground.settling();
    let end = begun + ground.time;
    for i in 0.. {
        while !refill.has_room() {
            refill.wait(ground.time);
        }
        let offset = ground.offset(place, i);
        let now = Instant::now();
        if now >= end {
            break;
        }
        let got = read(offset)?;
        let took = now.elapsed();
        if !matches!(got, Got::Hit) {
            refill.bring(offset);
        }
        if now < begun {
            continue;
        }
        match got {
            Got::Hit => {
                paid.hits += 1;
                hits.saturating_record(nanoseconds(took));
            }
            Got::Miss => {
                paid.misses += 1;
                misses.saturating_record(nanoseconds(took));
            }
            Got::Race => paid.races += 1,
        }
    }
    paid.hit_ns = quantile(&hits, 0.5);
    paid.hit_p99_ns = quantile(&hits, 0.99);
    paid.miss_ns = quantile(&misses, 0.5);
    Ok(paid)
}

/// Makes strict reads, one after the other. The library counts its own races.
pub fn strict(ground: &Ground, place: Place, engine: &nowait::Engine) -> Result<Strict, Problem> {
    let file = nowait::OpenOptions::new()
        .read(true)
        .cache_mode(nowait::Mode::Strict)
        .engine(engine)
        .blocking_open(&ground.path)?;
    let mut buffer = vec![0; place.block as usize];
    let begun = Instant::now() + ground.settling();
    let end = begun + ground.time;
    let mut before = None;
    let mut reads = 0;
    for i in 0.. {
        let now = Instant::now();
        if now >= end {
            break;
        }
        if now >= begun {
            before.get_or_insert_with(|| engine.stats());
            reads += 1;
        }
        let read = pollster::block_on(file.read_at(buffer, ground.offset(place, i)));
        read.result?;
        buffer = read.buf;
    }
    let after = engine.stats();
    // The turn ended before anything counted.
    let Some(before) = before else {
        return Ok(Strict::default());
    };
    Ok(Strict {
        reads,
        hits: after.hits - before.hits,
        misses: after.misses - before.misses,
        races: after.races - before.races,
    })
}
