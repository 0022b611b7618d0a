//! Counts what operations cost in user space: instructions, system calls, allocations, and reads of the
//! clock.
//!
//! ```text
//!  instructions               the driver: all rows, beside the committed table
//!  instructions ROW N FILE    the measured program: N operations of a row
//! ```

mod callgrind;
mod clock;
mod data;
mod measure;
mod rows;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use data::Failure;
use measure::Bench;
use rows::ROWS;
use table::{Comparison, Cost, Table};

/// Counts what operations cost in user space, and compares with the committed table
///
/// Exit codes: 0 passed or skipped, 1 a row is dearer or lost (with NOWAIT_TEST_ALL=1 also if a row was skipped), 2 a row
/// failed.
#[derive(Debug, Parser)]
struct Args {
    /// Run this row, and do not measure
    #[arg(requires = "count", requires = "file")]
    row: Option<String>,

    /// The number of operations of the row
    count: Option<usize>,

    /// The file that the row reads
    file: Option<PathBuf>,

    /// Measure the rows whose names contain this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// The directory for the file that is read
    #[arg(long, default_value = ".")]
    dir: PathBuf,

    /// The committed table
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/table.json"))]
    table: PathBuf,

    /// Replace the committed table
    #[arg(long, conflicts_with = "only")]
    save: bool,

    /// Print JSON, in the form of the committed table
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match (&args.row, args.count, &args.file) {
        (Some(row), Some(count), Some(file)) => run(row, count, file),
        _ => measure_all(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("instructions: {error}");
        ExitCode::from(2)
    })
}

/// The measured program.
fn run(name: &str, count: usize, file: &Path) -> Result<ExitCode, Failure> {
    clock::advance_by_reads();
    let row = ROWS.iter().find(|row| row.name == name);
    row.ok_or("there is no row of this name")?
        .run(file, count)?;
    Ok(ExitCode::SUCCESS)
}

/// The driver.
fn measure_all(args: &Args) -> Result<ExitCode, Failure> {
    if let Some(missing) = measure::missing_tool() {
        return Ok(skip(&missing));
    }
    let bench = Bench::new(&args.dir)?;
    let (mut names, mut skipped) = (Vec::new(), BTreeMap::new());
    let mut failed = false;
    let mut now = Table {
        toolchain: measure::toolchain()?,
        rows: BTreeMap::new(),
    };
    let is_wanted = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only));
    for row in ROWS.iter().filter(|row| is_wanted(row.name)) {
        if let Some(missing) = bench.missing(row) {
            skipped.insert(row.name.to_owned(), missing);
            continue;
        }
        match bench.cost(row) {
            Ok(costs) => {
                names.extend(costs.iter().map(|(name, _)| name.clone()));
                now.rows.extend(costs);
            }
            Err(error) => {
                eprintln!("instructions: {}: {error}", row.name);
                failed = true;
            }
        }
    }
    check_known(&now)?;
    if failed {
        print!(
            "{}",
            Comparison::new(&Table::default(), &now, &skipped).text(&names)
        );
        return Ok(ExitCode::from(2));
    }
    report(args, &now, &names, &mut skipped)
}

/// Fails if the tools have miscounted an operation whose counts are known.
fn check_known(table: &Table) -> Result<(), Failure> {
    let Some(known) = table.rows.get("known") else {
        return Ok(());
    };
    let expected = Cost {
        instructions: known.instructions,
        system_calls: 1.0,
        allocations: 1.0,
        clock_reads: 2.0,
    };
    if *known != expected {
        return Err(format!("the tools have counted {known:?} instead of {expected:?}").into());
    }
    Ok(())
}

/// Prints the table, compares it or saves it.
fn report(
    args: &Args,
    now: &Table,
    names: &[String],
    skipped: &mut BTreeMap<String, String>,
) -> Result<ExitCode, Failure> {
    let before = match fs::read(&args.table) {
        Ok(text) => serde_json::from_slice(&text)?,
        Err(_) => Table::default(),
    };
    let mut result = ExitCode::SUCCESS;
    for (name, missing) in &*skipped {
        result = skip(&format!("{name}: {missing}"));
    }
    if args.only.is_some() {
        let unwanted = before
            .rows
            .keys()
            .filter(|name| !now.rows.contains_key(*name));
        skipped.extend(unwanted.map(|name| (name.clone(), String::new())));
    }
    let comparison = Comparison::new(&before, now, skipped);
    if args.json {
        println!("{}", serde_json::to_string_pretty(now)?);
    } else {
        println!("{}{}", comparison.text(names), now.toolchain);
    }
    if args.save {
        fs::write(&args.table, serde_json::to_string_pretty(now)? + "\n")?;
        return Ok(result);
    }
    for remark in comparison.remarks() {
        eprintln!("{remark}");
    }
    Ok(if comparison.passes() {
        result
    } else {
        ExitCode::from(1)
    })
}

/// Prints that something is skipped. In CI (NOWAIT_TEST_ALL=1) a skip is a failure.
fn skip(missing: &str) -> ExitCode {
    if std::env::var_os("NOWAIT_TEST_ALL").is_some_and(|value| value == "1") {
        eprintln!("failed, because NOWAIT_TEST_ALL=1: {missing}");
        return ExitCode::from(1);
    }
    eprintln!("skipped: {missing}");
    ExitCode::SUCCESS
}
