//! Walks a tree and adds up the sizes of its files. Prints the number of entries, the total size, the time
//! and the statistics.
//!
//! `cargo run --release --example walk -- DIRECTORY`

use std::time::Instant;

use nowait::StatxMask;
use nowait::walk;

fn main() -> nowait::Result<()> {
    let root = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let start = Instant::now();
    let mut walk = walk::Options::new()
        .metadata(StatxMask::BASIC_STATS)
        .blocking_open(&root)?;
    let (mut entries, mut blocks) = (0, 0);
    while let Some(found) = walk.blocking_batch() {
        match found {
            Ok(found) => {
                for entry in found.batch().iter() {
                    entries += 1;
                    if let Some(Ok(stat)) = entry.metadata() {
                        blocks += stat.blocks();
                    }
                }
            }
            Err(error) => println!("{error}"),
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{entries} entries, {} KiB, {seconds:.6} s", blocks / 2);
    println!("{:?}", walk.stats());
    Ok(())
}
