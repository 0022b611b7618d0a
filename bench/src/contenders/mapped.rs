//! Contenders that map a file: memmap2, and nowait's `Mapping`. All of the file is mapped and in
//! memory before a turn begins.

use std::io::Error;

use compio::io::AsyncReadAt;
use nowait::mapping::{Budget, Mapping};

use super::{blocking, future};
use crate::harness::round::Round;
use crate::harness::turn::{Lane, Turn};
use nowait_cli::problem::Problem;
use nowait_cli::scramble::Random;

/// The number of borrows for each step of the lane: a step takes longer than one borrow.
const BORROWS: u64 = 1024;

/// A loop of `Mapping::blocking_read_at`.
pub fn copy(turn: &Turn<'_>) -> Result<Round, Problem> {
    let mappings = mappings(turn)?;
    turn.run(|lane| {
        blocking::each(lane, turn.block, |file, buffer, offset| {
            Ok(mappings[file].blocking_read_at(buffer, offset)?)
        })
    })
}

/// A loop of copies from a mapping by memmap2.
pub fn copy_memmap2(turn: &Turn<'_>) -> Result<Round, Problem> {
    let maps = maps(turn)?;
    turn.run(|lane| {
        blocking::each(lane, turn.block, |file, buffer, offset| {
            let at = offset as usize;
            buffer.copy_from_slice(&maps[file][at..at + buffer.len()]);
            Ok(buffer.len())
        })
    })
}

/// A loop of reads by compio, each awaited before the next.
pub fn copy_compio(turn: &Turn<'_>) -> Result<Round, Problem> {
    turn.run(|lane| {
        let runtime = compio::runtime::Runtime::new().map_err(|e| Problem::of("compio", e))?;
        runtime.block_on(async {
            let mut files = Vec::new();
            for path in &turn.files.paths {
                let open = compio::fs::OpenOptions::new().read(true).open(path).await;
                files.push(open.map_err(|e| Problem::of(path.display(), e))?);
            }
            let mut buffer = Vec::with_capacity(turn.block as usize);
            lane.begin();
            while let Some(place) = lane.next() {
                let timer = lane.tape.timer(1);
                buffer.clear();
                let done = files[place.file].read_at(buffer, place.offset).await;
                buffer = done.1;
                let n = done.0.map_err(|e| Problem::of("read", e))?;
                lane.tape.call(timer);
                lane.done(n, turn.block)?;
            }
            Ok(())
        })
    })
}

/// A loop of `Mapping::get`, whose bytes are summed up.
pub fn borrow(turn: &Turn<'_>) -> Result<Round, Problem> {
    // A program knows the length of a small record, so the compiler knows 8 bytes here, too.
    match turn.block {
        8 => borrow_each::<8>(turn),
        _ => borrow_each::<0>(turn),
    }
}

/// As [`borrow`], of `LEN` bytes, or of the turn's block if it is 0.
fn borrow_each<const LEN: u64>(turn: &Turn<'_>) -> Result<Round, Problem> {
    let mappings = mappings(turn)?;
    let len = if LEN == 0 { turn.block } else { LEN };
    turn.run(|lane| {
        many(lane, turn, &mappings, |mapping, at| {
            let bytes = mapping.get(at..at + len)?;
            Some(sum(&bytes))
        })
    })
}

/// A loop of slices of a mapping by memmap2, whose bytes are summed up.
pub fn borrow_memmap2(turn: &Turn<'_>) -> Result<Round, Problem> {
    match turn.block {
        8 => borrow_each_memmap2::<8>(turn),
        _ => borrow_each_memmap2::<0>(turn),
    }
}

/// As [`borrow_each`].
fn borrow_each_memmap2<const LEN: u64>(turn: &Turn<'_>) -> Result<Round, Problem> {
    let maps = maps(turn)?;
    let len = if LEN == 0 { turn.block } else { LEN };
    turn.run(|lane| {
        many(lane, turn, &maps, |map, at| {
            let bytes = map.get(at as usize..(at + len) as usize)?;
            Some(sum(bytes))
        })
    })
}

/// The lane gives the first place of each [`BORROWS`]; the others are drawn from it, by the same
/// few instructions for every contender.
#[inline(always)]
fn many<F>(
    lane: &mut Lane<'_>,
    turn: &Turn<'_>,
    files: &[F],
    sum_at: impl Fn(&F, u64) -> Option<u64>,
) -> Result<(), Problem> {
    let blocks = turn.files.blocks(turn.block);
    let mut total = 0u64;
    lane.begin();
    while let Some(place) = lane.next() {
        let mut random = Random::new(place.offset);
        let (file, blocks) = (&files[place.file], blocks[place.file]);
        for _ in 0..BORROWS {
            let block = random.below(blocks);
            let Some(sum) = sum_at(file, block * turn.block) else {
                let why = "a part of the file is not resident";
                return Err(Problem::Failed(why.into()));
            };
            total = total.wrapping_add(sum);
        }
        lane.done_many(BORROWS);
    }
    std::hint::black_box(total);
    Ok(())
}

/// The sum of numbers of 8 bytes.
#[inline(always)]
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8).map(|word| {
        let word = word.try_into().unwrap_or_default();
        u64::from_le_bytes(word)
    });
    words.fold(0, u64::wrapping_add)
}

/// The files of a turn, all of whose windows are resident.
fn mappings(turn: &Turn<'_>) -> Result<Vec<Mapping>, Problem> {
    let budget = Budget::process()?;
    if budget.limit() < turn.files.total() {
        return Err(Problem::Failed(format!(
            "only {} bytes may be locked, of {}: raise the limit (ulimit -l), or choose a smaller --size",
            budget.limit(),
            turn.files.total()
        )));
    }
    let engine = nowait::Engine::new()?;
    let mut mappings = Vec::new();
    for file in future::open(turn, &engine)? {
        let mapping = Mapping::within(&file, &budget)?;
        if let Some(why) = mapping.why() {
            return Err(Problem::Failed(format!(
                "bytes of the file cannot be borrowed: {why:?}"
            )));
        }
        drop(mapping.blocking_load(0..mapping.len())?);
        mappings.push(mapping);
    }
    Ok(mappings)
}

/// The files of a turn, mapped by memmap2, with all page table entries.
fn maps(turn: &Turn<'_>) -> Result<Vec<memmap2::Mmap>, Problem> {
    let files = turn.files.open()?;
    let maps = files.iter().map(|file| {
        // SAFETY: no program changes the file: [`Lane::done`] says so if one does.
        #[allow(unsafe_code, reason = "memmap2 has no safe way to map a file")]
        let map = unsafe { memmap2::Mmap::map(file) }?;
        map.advise(memmap2::Advice::PopulateRead)?;
        Ok(map)
    });
    maps.collect::<Result<_, Error>>()
        .map_err(|e| Problem::of("mmap", e))
}
