//! Lists a directory and asks for the metadata of every entry. Prints the number of entries, the time, the
//! plan and the statistics.
//!
//! `cargo run --release --example scan -- DIRECTORY [names|stat|xattr|readahead] [option=value ...]`
//!
//! Options: `parts`, `workers`, `window` (entries), `stat_order` (listed, inode), `order` (any, inode, name).

use std::time::Instant;

use nowait::StatxMask;
use nowait::scan::{Limits, Options, Order, StatOrder, Xattrs, readahead};

fn main() -> nowait::Result<()> {
    let mut args = std::env::args().skip(1);
    let directory = args.next().unwrap_or_else(|| ".".into());
    let mut options = Options::new().metadata(StatxMask::BASIC_STATS);
    for arg in args {
        let (name, value) = arg.split_once('=').unwrap_or((&arg, ""));
        let number = value.parse().unwrap_or(1);
        options = match (name, value) {
            ("names", _) => Options::new(),
            ("stat", _) => options,
            ("xattr", _) => options.xattrs(Xattrs::Values),
            ("readahead", _) => return ahead(&directory),
            ("parts", _) => options.parts(number),
            ("workers", _) => options.workers(number),
            ("window", _) => options.window(number, number.saturating_mul(1024)),
            ("stat_order", "inode") => options.stat_order(StatOrder::Inode),
            ("stat_order", _) => options.stat_order(StatOrder::Listed),
            ("order", "inode") => options.order(Order::Inode),
            ("order", "name") => options.order(Order::Name),
            _ => {
                println!("unknown argument: {arg}");
                return Ok(());
            }
        };
    }
    let start = Instant::now();
    let mut scan = options.blocking_open(&directory)?;
    let (mut entries, mut bytes, mut failed) = (0, 0, 0);
    while let Some(batch) = scan.blocking_batch() {
        for entry in batch?.iter() {
            entries += 1;
            match entry.metadata() {
                Some(Ok(stat)) => bytes += stat.len(),
                Some(Err(_)) => failed += 1,
                None => {}
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{entries} entries, {bytes} bytes, {failed} failed, {seconds:.6} s");
    println!("{:?}\n{:?}", scan.plan(), scan.stats());
    Ok(())
}

fn ahead(directory: &str) -> nowait::Result<()> {
    let start = Instant::now();
    let ahead = readahead(directory, &Limits::new())?;
    let begun = start.elapsed().as_secs_f64();
    ahead.blocking_wait();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "started in {begun:.6} s, ended after {seconds:.6} s: {:?}",
        ahead.progress()
    );
    Ok(())
}
