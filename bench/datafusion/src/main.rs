//! TPC-H by DataFusion over Parquet, with `NowaitFileSystem` beside `LocalFileSystem`.
//!
//! ```text
//! tables   makes the Parquet files
//! queries  the 22 queries with the parameters of the specification's validation
//! store    the two stores, and a session with one of them
//! measure  the rounds of one setting: processors, cold or warm
//! report   the table
//! ```

mod measure;
mod queries;
mod report;
mod store;
mod tables;

use std::error::Error;
use std::path::PathBuf;

use clap::Parser;

use measure::{Setting, measure};

/// Runs the queries of TPC-H with both stores in turns, and prints a table of times and ratios
#[derive(Parser)]
struct Args {
    /// The directory of the Parquet files. Missing files are made and kept
    #[arg(long, value_name = "PATH", default_value = "target/tpch")]
    dir: PathBuf,

    /// The scale factor of the tables that are made
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    scale: f64,

    /// How many times each query runs with each store
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,

    /// The queries [default: all]
    #[arg(long, value_name = "N,…", value_delimiter = ',',
          value_parser = clap::value_parser!(i32).range(1..=22))]
    queries: Vec<i32>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    tables::make_missing(&args.dir, args.scale)?;
    let dir = args.dir.canonicalize()?;
    let queries = match &args.queries[..] {
        [] => (1..=22).collect(),
        queries => queries.to_vec(),
    };
    let all = std::thread::available_parallelism()?.get();
    let processors = if all == 1 { vec![1] } else { vec![1, all] };
    for processors in processors {
        for cold in [true, false] {
            let setting = Setting { processors, cold };
            let rows = measure(&dir, setting, &queries, args.rounds)?;
            println!("{}", report::table(setting, &rows));
        }
    }
    Ok(())
}
