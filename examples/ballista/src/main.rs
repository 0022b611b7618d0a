//! TPC-H by a cluster of Ballista on one machine, whose executors read through `NowaitFileSystem` or `LocalFileSystem`.
//!
//! ```text
//! cluster  a scheduler, an executor, and a client, each with one of the stores
//! tables   makes the Parquet files (of bench/datafusion)
//! queries  the 22 queries (of bench/datafusion)
//! ```

mod cluster;
#[path = "../../../bench/datafusion/src/queries.rs"]
mod queries;
#[path = "../../../bench/datafusion/src/tables.rs"]
mod tables;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Parser, Subcommand};
use datafusion::arrow::util::pretty::pretty_format_batches;
use rustix::fs::Advice;
use tokio::signal::unix::{SignalKind, signal};

use cluster::{Cluster, Store};

/// TPC-H by a cluster of Ballista on this machine
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Starts a cluster for each store, and runs the queries on them in turns
    Tpch(Tpch),
    /// Runs a scheduler
    Scheduler {
        /// The store for the metadata of tables
        #[arg(long)]
        store: Store,
        /// The port that the scheduler listens on
        #[arg(long, value_name = "N", default_value_t = 50050)]
        port: u16,
    },
    /// Runs an executor
    Executor(cluster::Executor),
}

#[derive(Args)]
struct Tpch {
    /// The stores. The results of all of them must be equal
    #[arg(long, value_delimiter = ',', default_value = "local,nowait")]
    store: Vec<Store>,

    /// The directory of the Parquet files. Missing files are made and kept
    #[arg(long, value_name = "PATH", default_value = "target/tpch")]
    dir: PathBuf,

    /// The scale factor of the tables that are made
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    scale: f64,

    /// How many times each query runs with each store
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,

    /// The queries
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,3,5,6,12,14,18,19",
          value_parser = clap::value_parser!(i32).range(1..=22))]
    queries: Vec<i32>,

    /// Evicts the tables from the page cache before each query
    #[arg(long)]
    cold: bool,

    /// The port of the first scheduler. Each cluster uses five ports, one after another
    #[arg(long, value_name = "N", default_value_t = 50050,
          value_parser = clap::value_parser!(u16).range(1..65000))]
    port: u16,
}

fn main() -> Result<(), Box<dyn Error>> {
    // RUST_LOG=info shows what the cluster does.
    env_logger::init();
    let command = Arguments::parse().command;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        match command {
            Command::Scheduler { store, port } => cluster::scheduler(store, port).await,
            Command::Executor(executor) => executor.run().await,
            Command::Tpch(tpch) => {
                tables::make_missing(&tpch.dir, tpch.scale)?;
                let mut terminate = signal(SignalKind::terminate())?;
                // The processes of the clusters end with the future of `run`.
                tokio::select! {
                    result = run(&tpch) => result,
                    _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
                    _ = terminate.recv() => Err("terminated".into()),
                }
            }
        }
    })
}

/// Runs the queries, and prints a table of their times.
async fn run(tpch: &Tpch) -> Result<(), Box<dyn Error>> {
    let dir = tpch.dir.canonicalize()?;
    let mut clusters = Vec::new();
    for (port, store) in (tpch.port..).step_by(5).zip(&tpch.store) {
        clusters.push(Cluster::start(*store, port, &dir).await?);
    }
    let names: Vec<&str> = tpch.store.iter().map(|store| store.name()).collect();
    println!("| query | {}, ms | rows |", names.join(", ms | "));
    println!("|{}", "---|".repeat(names.len() + 2));
    for &query in &tpch.queries {
        let mut times = vec![Vec::new(); clusters.len()];
        let mut expected = None;
        for round in 0..tpch.rounds {
            for turn in 0..clusters.len() {
                // Each round begins with the next store.
                let at = (turn + round) % clusters.len();
                let (time, rows) = measure(&clusters[at], &dir, query, tpch.cold).await?;
                times[at].push(time);
                if *expected.get_or_insert_with(|| rows.clone()) != rows {
                    return Err(format!("query {query}: the results differ").into());
                }
            }
        }
        let times: Vec<String> = times.into_iter().map(median).collect();
        // Four lines are the frame and the header.
        let rows = expected.map_or(0, |rows| rows.len().saturating_sub(4));
        println!("| {query} | {} | {rows} |", times.join(" | "));
    }
    println!("\nAll results of a query are equal.");
    for cluster in clusters {
        cluster.stop().await?;
    }
    Ok(())
}

/// Runs a query once. Returns the time in seconds, and the rows as lines of text.
async fn measure(
    cluster: &Cluster,
    dir: &Path,
    query: i32,
    cold: bool,
) -> Result<(f64, Vec<String>), Box<dyn Error>> {
    // In a new session, the executors know nothing of the tables.
    let session = cluster.session(dir).await?;
    if cold {
        for table in tables::TABLES {
            let file = std::fs::File::open(tables::file(dir, table))?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    let mut batches = Vec::new();
    let begin = Instant::now();
    for statement in queries::statements(query) {
        let result = session.sql(&statement).await?.collect().await?;
        if statement.starts_with("select") {
            batches = result;
        }
    }
    let time = begin.elapsed().as_secs_f64();
    let text = pretty_format_batches(&batches)?.to_string();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // The queries do not define the order of equal rows.
    lines.sort();
    Ok((time, lines))
}

/// The median of times in seconds, in milliseconds.
fn median(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    times
        .get(times.len() / 2)
        .map_or(String::from("-"), |time| format!("{:.0}", time * 1e3))
}
