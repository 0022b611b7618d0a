//! The rounds of one setting.

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::time::Instant;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::SessionContext;
use nowait::Engine;
use rustix::fs::Advice;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::runtime::Runtime;

use crate::queries::statements;
use crate::store::Store;
use crate::tables::{TABLES, file};

/// The processors and the state of the page cache.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub processors: usize,
    /// The files are evicted from the page cache before each query.
    pub cold: bool,
}

/// The times of a query in seconds: for each round those of [`Store::ALL`], in that order.
pub struct Row {
    pub query: i32,
    pub rounds: Vec<[f64; 2]>,
}

/// Runs each query with both stores in turns.
pub fn measure(
    dir: &Path,
    setting: Setting,
    queries: &[i32],
    rounds: usize,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let before = sched_getaffinity(None)?;
    // All threads that are started from here on inherit it.
    sched_setaffinity(None, &first(&before, setting.processors))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(setting.processors)
        .enable_all()
        .build()?;
    let engine = Engine::new()?;
    let mut rows = Vec::new();
    for &query in queries {
        let mut row = Row {
            query,
            rounds: Vec::new(),
        };
        for round in 0..rounds {
            row.rounds
                .push(pair(&runtime, &engine, dir, setting, (query, round))?);
        }
        eprintln!("query {query}: {} rounds", row.rounds.len());
        rows.push(row);
    }
    sched_setaffinity(None, &before)?;
    Ok(rows)
}

/// Runs a query once with each store, and compares the results.
fn pair(
    runtime: &Runtime,
    engine: &Engine,
    dir: &Path,
    setting: Setting,
    (query, round): (i32, usize),
) -> Result<[f64; 2], Box<dyn Error>> {
    let mut times = [0.0; 2];
    let mut results = [Vec::new(), Vec::new()];
    for turn in 0..2 {
        // Each round begins with the other store.
        let at = (turn + round) % 2;
        let session = Store::ALL[at].session(engine, dir, setting.processors);
        let session = runtime.block_on(session)?;
        for table in TABLES {
            prepare(&file(dir, table), setting.cold)?;
        }
        let begin = Instant::now();
        let batches = runtime.block_on(run(&session, query))?;
        times[at] = begin.elapsed().as_secs_f64();
        results[at] = lines(&batches)?;
    }
    match results[0] == results[1] {
        true => Ok(times),
        false => Err(format!("query {query}: the results differ").into()),
    }
}

/// Runs the statements of a query, and returns the rows.
async fn run(session: &SessionContext, query: i32) -> Result<Vec<RecordBatch>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for statement in statements(query) {
        let batches = session.sql(&statement).await?.collect().await?;
        if statement.starts_with("select") {
            rows = batches;
        }
    }
    Ok(rows)
}

/// The rows as text, sorted: the queries do not define the order of equal rows.
fn lines(batches: &[RecordBatch]) -> Result<Vec<String>, Box<dyn Error>> {
    let text = pretty_format_batches(batches)?.to_string();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    Ok(lines)
}

/// Evicts a file from the page cache, or reads it through.
fn prepare(path: &Path, cold: bool) -> Result<(), Box<dyn Error>> {
    let mut file = File::open(path)?;
    if cold {
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    } else {
        std::io::copy(&mut file, &mut std::io::sink())?;
    }
    Ok(())
}

/// The first processors of a set.
fn first(set: &CpuSet, processors: usize) -> CpuSet {
    let mut first = CpuSet::new();
    let members = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    members.take(processors).for_each(|cpu| first.set(cpu));
    first
}
